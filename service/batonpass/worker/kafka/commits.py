"""What is committed beside offsets: the ids of the topics that they, and the state, belong to (KIP-516).

A topic that was deleted and made anew has another id, however long it is. So whoever goes on from committed offsets
sees that they are of a topic which is gone, or that the state's changelog is not the one that they were committed with.
Offsets that a person has set say nothing of that, and are believed.
"""

import json
from collections.abc import Mapping

METADATA_CHARS_MAX = 4_000
"""A cluster takes 4,096 bytes by default (`offset.metadata.max.bytes`)."""


def metadata_of(topic_ids: Mapping[str, str]) -> str:
    """Return the metadata of a commit; empty where no ids are known, or they are too many."""
    written = json.dumps({"topics": dict(topic_ids)}, separators=(",", ":")) if topic_ids else ""
    return written if len(written) <= METADATA_CHARS_MAX else ""


def topic_ids_of(metadata: str) -> dict[str, str]:
    """Return the topic ids that metadata names; none where somebody else has written it."""
    try:
        return {str(topic): str(topic_id) for topic, topic_id in json.loads(metadata)["topics"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
