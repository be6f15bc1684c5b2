"""Tools for testing what is built on Lakestate: the operator harness, fault injection, the store contract.

It is shipped with the package and may import everything except `spark/`; only tests and the demo's
source import it. The contracts, the S3 server and the pytest plugin need pytest or SeaweedFS; import them
from `store_contract`, `sink_contract`, `s3_server` and `plugin`. `sink_harness` runs a sink.
`simulation/` runs whole jobs under faults.
"""

from lakestate.testing.counting import CountingStore, Request, RequestCount, count_requests
from lakestate.testing.faults import (
    Fault,
    FaultyStore,
    Hook,
    Operation,
    SimulatedCrash,
    StoreCall,
    faults_at,
    no_faults,
)
from lakestate.testing.operator_harness import OperatorHarness
from lakestate.testing.stepping import SteppingAmbient

__all__ = [
    "CountingStore",
    "Fault",
    "FaultyStore",
    "Hook",
    "Operation",
    "OperatorHarness",
    "Request",
    "RequestCount",
    "SimulatedCrash",
    "SteppingAmbient",
    "StoreCall",
    "count_requests",
    "faults_at",
    "no_faults",
]
