"""Have Prefect call an address when a flow run of ours fails or crashes: `python docs/notify.py https://example.org/hook`.

Run it once a server, with PREFECT_API_URL set; again with another address to change it.
Seen and switched off on the page under Automations.
"""

import sys
from contextlib import suppress

from prefect.automations import Automation
from prefect.blocks.webhook import Webhook
from prefect.events import EventTrigger
from prefect.events.actions import CallWebhook

NAME = "sesame-failures"
MESSAGE = """{
  "flow_run": "{{ flow_run.name }}", "state": "{{ flow_run.state.name }}", "message": {{ flow_run.state.message | tojson }},
  "id": "{{ flow_run.id }}"
}"""

block = Webhook(url=sys.argv[1]).save(NAME, overwrite=True)
automation = Automation(
    name=NAME,
    trigger=EventTrigger(
        expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
        match_related={"prefect.resource.role": "flow", "prefect.resource.name": "sesame"},
        posture="Reactive",
        threshold=1,
    ),
    actions=[CallWebhook(block_document_id=block, payload=MESSAGE)],
)
with suppress(ValueError):  # there is none the first time
    Automation.read(name=NAME).delete()
automation.create()
