"""Everything that must hold in a simulated run, and the error for a run in which it does not."""

from __future__ import annotations

from enum import Enum


class Promise(Enum):
    """What holds in every run. The value is the text in reports."""

    # Publication and fencing
    GENERATIONS_RISE = "generations only rise"
    FENCED_CHANGES_NOTHING = "a fenced driver changes nothing"
    FENCED_PUBLISHES_NOTHING = "a fenced driver publishes nothing"
    ONLY_OVERTAKEN_FENCED = "only a driver that was overtaken is fenced"
    EPOCHS_IN_SEQUENCE = "epochs are published one after another"
    BATCHES_BECOME_EPOCHS = "a batch of the engine becomes the epoch after the newest"
    OFFSETS_ADVANCE = "offsets never go back by themselves"
    GOES_BACK_EXACTLY = "an epoch that goes back is the earlier one under a new number"
    WATERMARK_FROM_EARLIER_ROWS = "the watermark follows from the rows of earlier epochs"
    COMMIT_AFTER_PUBLISHING = "nothing is committed before it is published"

    # State
    EPOCH_RESTORABLE = "every retained epoch can be restored"
    HOOKS_SEE_STATE = "hooks see what the epoch before left and the rows of their own, and nothing else"
    STATE_EXACT = "every retained epoch has exactly the oracle's state"
    READER_SEES_EPOCH = "a reader sees exactly the epoch"
    RETAINED_READABLE = "a retained epoch can be read"
    WRITTEN_READABLE = "what is written can be read"
    FINAL_READABLE = "what is stored at the end can be read"
    NAMES_IMMUTABLE = "a name is never used for two contents"
    REFERENCES_EXIST = "no referenced object is missing"

    # Retention
    NEEDED_NOT_DELETED = "no object that a retained epoch needs is deleted"
    TAG_KEEPS_EPOCH = "a tag that was acknowledged keeps its epoch"
    BOUNDARY_ADVANCES = "the retention boundary only advances"
    BOUNDARY_PUBLISHED = "the retention boundary is a published epoch"
    POLICY_KEPT = "as many epochs are kept as the policy says"
    RETENTION_WORKS = "retention never refuses"
    UNNEEDED_COLLECTED = "what no epoch needs is collected"
    FORK_WHOLE = "what an epoch of a fork refers to is there, as long as the epoch is"
    FORK_EXACT = "a fork has exactly the state of the epoch that it was made from"
    FOREIGN_UNTOUCHED = "nothing of another job is touched"

    # Output
    NO_SURPLUS_OUTPUT = "no row of output is duplicated, early or invented"
    OUTPUT_COMPLETE = "output has every row exactly once"
    PAUSE_SHOWS_ALL = "after a driver finished its files, readers see all rows of its epochs"
    OUTPUT_MATCHES_STATE = "state and output are of the same attempts"
    OUTPUT_IMMUTABLE = "a file of output is never changed"
    OUTPUT_NOT_DELETED = "output that readers see is never deleted"
    OPEN_ROWS_READABLE = "with copies of open files, every committed row of output can be read by path"
    COPIES_REMOVED = "no copy stays of a file that is finished"
    UPLOADS_CLOSED = "no upload stays open"
    ONE_OWNER = "a copy of a job does not get its output"

    # Tables
    TABLE_EXACT = "every version of a table has the rows of the epochs that it records, each once"
    TABLE_READABLE = "every version of a table can be read"
    TABLE_FOLLOWED = "whoever reads only what is appended to a table gets each row once"
    TABLE_RECORDS_EPOCHS = "a table records published epochs, one after another"

    # Output of operators
    COMMIT_EXACT = "on_commit gets exactly what the subtasks left"
    COMMIT_NOT_REPEATED = "no start commits again what was marked as committed before it"
    COMMITS_IN_ORDER = "an epoch is published after earlier ones are committed"
    MARKED_IS_COMMITTED = "what is marked as committed is committed"
    TARGET_EXACT = "a target that compares epochs has every row exactly once"
    DELIVERED_EXACT = "a delivered epoch adds its own rows, all of them and once"

    # Progress
    ERRORS_ARE_OURS = "processes fail only with errors of this package"
    DRIVER_CONTINUES = "the driver that holds the job can continue"
    PROGRESS = "the job makes progress"
    JOB_FINISHES = "a job without further faults finishes"


class BrokenPromiseError(AssertionError):
    """A promise was broken. `cause` is the error that showed it, if there was one."""

    def __init__(self, promise: Promise, found: object, cause: BaseException | None = None) -> None:
        super().__init__(f"{promise.value}: {found}")
        self.promise = promise
        self.cause = cause or (found if isinstance(found, BaseException) else None)
