"""Tools for testing what is built on Lakestate: fault injection, the store contract, an S3 server.

The store contract and the S3 server need pytest and SeaweedFS, and are imported from their own
modules.
"""

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
from lakestate.testing.stepping import SteppingAmbient

__all__ = [
    "Fault",
    "FaultyStore",
    "Hook",
    "Operation",
    "SimulatedCrash",
    "SteppingAmbient",
    "StoreCall",
    "faults_at",
    "no_faults",
]
