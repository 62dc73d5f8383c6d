"""No queue: the script of a subject that is only a reference over HTTP, and has nothing to install."""

from benchmarks.peers.peer import Peer, main


class NoQueue(Peer):
    packages = ("fastapi", "pydantic", "uvicorn")

    async def install(self) -> None:
        pass


if __name__ == "__main__":
    main(NoQueue)
