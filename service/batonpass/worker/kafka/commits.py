"""What is committed beside offsets: the ids of the topics that they, and the state, belong to (KIP-516).

A topic that was deleted and made anew has another id, however long it is. So whoever goes on from committed offsets
sees that they are of a topic which is gone, or that the state's changelog is not the one that they were committed with.
Offsets that a person has set say nothing of that, and are believed.

A job that begins at the end of its input also commits how many partitions each source had then. One that a source gets
later has nothing from before.
"""

import json
from collections.abc import Mapping
from typing import Any

METADATA_CHARS_MAX = 4_000
"""A cluster takes 4,096 bytes by default (`offset.metadata.max.bytes`)."""


def metadata_of(topic_ids: Mapping[str, str], began_with: Mapping[str, int]) -> str:
    """Return the metadata of a commit; empty where there is nothing to say, or it is too much."""
    said = {"topics": topic_ids, "partitions": began_with}
    written = json.dumps({name: dict(each) for name, each in said.items() if each}, separators=(",", ":"))
    return written if len("{}") < len(written) <= METADATA_CHARS_MAX else ""


def topic_ids_of(metadata: str) -> dict[str, str]:
    """Return the topic ids that metadata names; none where somebody else has written it."""
    return {topic: str(topic_id) for topic, topic_id in _said(metadata, "topics").items()}


def began_with_of(metadata: str) -> dict[str, int]:
    """Return how many partitions the sources had that metadata names; none where somebody else has written it."""
    return {topic: count for topic, count in _said(metadata, "partitions").items() if isinstance(count, int)}


def _said(metadata: str, name: str) -> dict[str, Any]:
    try:
        return {str(topic): each for topic, each in json.loads(metadata).get(name, {}).items()}
    except (ValueError, TypeError, AttributeError):
        return {}
