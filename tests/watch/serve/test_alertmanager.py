"""Alerts to Alertmanager and back: what one page sends another shows at the same place."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.finding import Severity
from syncline.watch.incident import Incident
from syncline.watch.serve.alertmanager import Inbox, Webhook, posted

SENT = Incident(
    "link.loss", Severity.CRITICAL, "host-01/nic-1 -> leaf-1", "9 lost", "none", since_s=1.8e9, host="host-01"
)


def shown(labels: Any, annotations: Any = None) -> Incident:
    inbox = Inbox()
    alert = {"status": "firing", "labels": labels, "annotations": annotations or {}}
    assert inbox.take(Webhook.model_validate({"alerts": [alert]})) == 1
    return inbox.alerts()[0]


def test_an_alert_of_ours_comes_back_at_its_place() -> None:
    out = posted(SENT, "", "")
    found = shown(out["labels"], out["annotations"])
    assert (found.place, found.host, found.severity) == (SENT.place, "host-01", Severity.CRITICAL)
    assert found.rule == "alertmanager.link.loss"


@pytest.mark.parametrize(
    ("labels", "host", "place"),
    [
        ({"instance": "gpu-07:9100", "device": "eth0"}, "gpu-07", "gpu-07/eth0"),
        ({"instance": "http://10.0.0.9:9750", "place": "http://10.0.0.9:9750"},) + ("http://10.0.0.9:9750",) * 2,
        ({"link": "a -> b"}, "", "a -> b"),
        ({}, "", "site"),
    ],
)
def test_alerts_of_others_are_laid_where_their_labels_say(labels: dict[str, str], host: str, place: str) -> None:
    found = shown(labels)
    assert (found.host, found.place) == (host, place)
