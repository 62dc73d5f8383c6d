"""Handlers as they are needed in earnest. Run them with ``tenure serve --app examples.handlers:jobs``.

``AI_URL`` and ``MAIL_URL`` name the two services that they call.
"""

import os

import httpx
from pydantic import BaseModel, Field

from tenure import JobContext, JobRegistry, PermanentError, RetryPolicy

jobs = JobRegistry()


class SummaryRequest(BaseModel):
    """A text to be made shorter."""

    text: str = Field(min_length=1, max_length=100_000)
    max_words: int = Field(100, ge=10, le=1_000)


class Summary(BaseModel):
    """What the model made of it."""

    text: str
    model: str


@jobs.handler(
    "ai.summary",
    queue="ai",
    max_attempts=8,
    timeout_seconds=120,
    retry=RetryPolicy(base_seconds=2, cap_seconds=300),
)
async def summarize(context: JobContext, request: SummaryRequest) -> Summary:
    """Asks a model for a summary.

    There is no retry loop here, on purpose. 429 and 5xx are passing faults: the attempt fails, its slot is free for
    other work, and the next one starts when ``Retry-After`` allows it, also after a restart. 4xx fails the job at once.
    """
    await context.progress(None, "asking the model")
    async with httpx.AsyncClient(timeout=90) as client:
        answer = await client.post(
            os.environ["AI_URL"], json={"prompt": f"Summarize in {request.max_words} words:\n{request.text}"}
        )
    answer.raise_for_status()
    said = answer.json()
    if said.get("refused"):
        raise PermanentError("the model refuses this text; asking again would not help")
    return Summary(text=said["text"], model=said["model"])


class Mail(BaseModel):
    """A mail from a template."""

    to: str = Field(pattern=r"^[^@\s]+@[^@\s]+$")
    template: str


@jobs.handler("mail.send", queue="mail", max_attempts=10, timeout_seconds=30)
async def send_mail(context: JobContext, mail: Mail) -> dict[str, str]:
    """Sends a mail once, however often it is attempted.

    The key is the same in every attempt, so the provider answers a repeat with the first mail's id. A cancel waits for
    the request's end: the receipt then says what is true, not that a mail was stopped which is on its way.
    """
    async with httpx.AsyncClient(timeout=20) as client, context.uninterruptible():
        answer = await client.post(
            os.environ["MAIL_URL"], json=mail.model_dump(), headers={"Idempotency-Key": context.idempotency_key}
        )
    answer.raise_for_status()
    return {"message_id": answer.json()["id"]}


class OrderRef(BaseModel):
    """An order of the shop (examples/shop.py)."""

    order_id: int


@jobs.handler("order.confirm", queue="orders")
async def confirm_order(context: JobContext, request: OrderRef) -> None:
    """Confirms an order: its row changes in the same commit as the job's success, or neither does."""
    async with context.completion({"confirmed": request.order_id}) as connection:
        done = await connection.execute("UPDATE orders SET state = 'confirmed' WHERE id = $1", request.order_id)
        if done != "UPDATE 1":
            raise PermanentError(f"there is no order {request.order_id}")
