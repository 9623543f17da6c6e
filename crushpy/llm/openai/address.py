"""Where a server that speaks OpenAI's protocols is asked, with or without /v1 at the end of its address."""

from urllib.parse import urlsplit


class Address:
    """`path` below `api_base`. A bare host gets /v1 before it, unless nothing is known there."""

    def __init__(self, api_base: str, path: str) -> None:
        base, question, query = api_base.partition("?")
        base = base.rstrip("/").removesuffix(f"/{path}")
        self._tail = f"/{path}{question}{query}"
        bare = not urlsplit(base).path.strip("/")
        self.url = f"{base}/v1{self._tail}" if bare else f"{base}{self._tail}"
        self._other = f"{base}{self._tail}" if bare else ""

    def learns(self, status: int | None, said: str) -> bool:
        """Whether there is another address to try, after the first was answered with `status` and words."""
        if status not in (404, 405) or not self._other or "model" in said.lower():
            return False
        self.url, self._other = self._other, ""
        return True


def azure_base(api_base: str, deployment: str, api_version: str) -> str:
    """What comes before the path at Azure: its newer address has no version, the older one a dated one."""
    root = api_base.rstrip("/").removesuffix("/v1").removesuffix("/openai")
    if api_version[:1].isdigit():
        return f"{root}/openai/deployments/{deployment}?api-version={api_version}"
    return f"{root}/openai/v1"
