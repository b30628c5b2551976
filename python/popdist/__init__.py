"""Which of several processes this one is. Without a launcher's environment variables: the only one.

The variables are those a launcher sets: POPDIST_NUM_TOTAL_REPLICAS, POPDIST_NUM_INSTANCES,
POPDIST_INSTANCE_INDEX, POPDIST_NUM_LOCAL_REPLICAS, POPDIST_NUM_IPUS_PER_REPLICA.
"""

import os


def _number(name, default):
    return int(os.environ.get(f"POPDIST_{name}", default))


def isPopdistEnvSet():
    """Was this process started by a launcher?"""
    return "POPDIST_NUM_TOTAL_REPLICAS" in os.environ


def init():
    """Nothing to set up: processes find each other through the environment alone."""


def getInstanceIndex():
    """This process's number."""
    return _number("INSTANCE_INDEX", 0)


def getNumInstances():
    """How many processes there are."""
    return _number("NUM_INSTANCES", 1)


def getNumTotalReplicas():
    """Copies of the model in all processes."""
    return _number("NUM_TOTAL_REPLICAS", 1)


def getNumLocalReplicas():
    """Copies of the model in this process."""
    return _number("NUM_LOCAL_REPLICAS", max(1, getNumTotalReplicas() // getNumInstances()))


def getNumIpusPerReplica():
    """IPUs of one copy."""
    return _number("NUM_IPUS_PER_REPLICA", 1)


def getReplicaIndexOffset():
    """The number of this process's first copy."""
    return getInstanceIndex() * getNumLocalReplicas()


def execute_on_instances(instances, function, *args, **kwargs):
    """Calls the function in the processes of the set; returns None in the others."""
    return function(*args, **kwargs) if getInstanceIndex() in instances else None
