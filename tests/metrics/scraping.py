"""Reads what a coordinator in this process shows to Prometheus."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families
from tests.api.conftest import Api

Series = Mapping[str, float]


async def scrape(api: Api, accept: str = "text/plain") -> Series:
    """Return every series by its name with its labels."""
    answer = await api.client.get("/metrics", headers={"accept": accept})
    assert answer.status_code == 200
    return {
        sample.name
        + "{"
        + ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
        + "}": sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
