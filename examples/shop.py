"""A shop that writes an order and enqueues its job in one transaction.

Run it beside a service (``tenure serve``), with the shop's table in Tenure's database::

    export TENURE_DATABASE_URL=$(tenure database-url)
    tenure worker --app examples.handlers:jobs &
    uvicorn --factory examples.shop:create_app --port 8090
    curl -s localhost:8090/orders -H 'Content-Type: application/json' -d '{"customer": "Ann", "cents": 1200}'
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import CheckConstraint
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tenure import enqueue


class Base(DeclarativeBase):
    """The shop's own tables."""


class Order(Base):
    """An order; its job confirms it."""

    __tablename__ = "orders"
    __table_args__ = (CheckConstraint("cents > 0", name="costs_something"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cents: Mapped[int]
    state: Mapped[str] = mapped_column(default="new")


class OrderRequest(BaseModel):
    """What a customer wants."""

    customer: str = Field(min_length=1, max_length=200)
    cents: int = Field(gt=0, le=1_000_000)


def create_app(database_url: str | None = None) -> FastAPI:
    """The shop on this database, by default the one that TENURE_DATABASE_URL names."""
    url = database_url or os.environ["TENURE_DATABASE_URL"]
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://", 1))
    sessions = async_sessionmaker(engine, expire_on_commit=False)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield
        await engine.dispose()

    app = FastAPI(title="Shop", lifespan=lifespan)

    @app.post("/orders", status_code=201)
    async def place_order(request: OrderRequest) -> dict[str, int | str]:
        async with sessions() as session:
            order = Order(customer=request.customer, cents=request.cents)
            session.add(order)
            await session.flush()
            job = await enqueue(session, "order.confirm", {"order_id": order.id}, queue="orders")
            await session.commit()
            await job.wake()
        return {"id": order.id, "job": str(job.job.id)}

    @app.get("/orders/{order_id}")
    async def read_order(order_id: int) -> dict[str, int | str]:
        async with sessions() as session:
            order = await session.get(Order, order_id)
        if order is None:
            raise HTTPException(404, "no such order")
        return {"id": order.id, "customer": order.customer, "cents": order.cents, "state": order.state}

    return app
