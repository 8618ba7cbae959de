"""Any env with the tools of MCP servers beside its own."""

import asyncio
from collections.abc import Sequence

from agentgym.envs.base import Env, Info, ResetResult
from agentgym.envs.wrappers import Wrapper
from agentgym.tools.mcp import McpServer, McpSession


class WithMcpTools(Wrapper):
    """Offers the tools of MCP servers too.

    A `McpServer` gets a session for each episode, opened by `reset` and closed by the next one or
    by `close`. An open `McpSession` is shared: whoever opened it closes it.
    """

    def __init__(self, env: Env, sources: Sequence[McpServer | McpSession]) -> None:
        super().__init__(env)
        self._sources = tuple(sources)
        self._own_tools = tuple(env.tools)
        self._sessions: list[McpSession] = []

    async def areset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """Open the sessions of the episode, then reset the env inside.

        Raises:
            ConfigError: a server cannot be started.
            EnvError: a server does not answer.
        """
        await self._close_sessions()
        tools = list(self._own_tools)
        for source in self._sources:
            tools += (await self._session(source)).tools
        self.env.tools = tuple(tools)
        return await self.env.areset(seed=seed, options=options)

    async def aclose(self) -> None:
        """Close the sessions of the episode and the env inside."""
        try:
            await self._close_sessions()
        finally:
            await self.env.aclose()

    async def _session(self, source: McpServer | McpSession) -> McpSession:
        if isinstance(source, McpSession):
            return source
        session = await McpSession.aopen(source)
        self._sessions.append(session)
        return session

    async def _close_sessions(self) -> None:
        sessions, self._sessions = self._sessions, []
        await asyncio.gather(*(session.aclose() for session in sessions))
