"""Users with passwords (SCRAM): who there is, setting a password, taking it away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dohle.client.admin.requests import AdminRequests, sort_out
from dohle.client.admin.results import Results
from dohle.client.errors import answered_error
from dohle.client.net.connection import Connection
from dohle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from dohle.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from dohle.security.scram import ITERATIONS_MIN, ScramMechanism, new_salt


class UserPassword(NamedTuple):
    """That a user has a password for a mechanism; what it is nobody tells."""

    mechanism: ScramMechanism
    iterations: int


class UserAdmin(AdminRequests):
    """Asks a cluster about its users."""

    async def describe_users(
        self, names: Iterable[str] = ()
    ) -> Results[str, tuple[UserPassword, ...]]:
        """Return which passwords users have; of all users if none are named."""
        request = DescribeUserScramCredentialsRequest(
            users=tuple(UserName(name=name) for name in names)
        )

        async def ask(connection: Connection) -> Results[str, tuple[UserPassword, ...]]:
            answer = await connection.request(request, DescribeUserScramCredentialsResponse)
            if answer.error_code:
                raise answered_error(answer.error_code, "the list of users", answer.error_message)
            return sort_out(
                (
                    each.user,
                    each.error_code,
                    f"user {each.user}",
                    each.error_message,
                    tuple(
                        UserPassword(ScramMechanism(info.mechanism), info.iterations)
                        for info in each.credential_infos
                    ),
                )
                for each in answer.results
            )

        return await self._ask_any("describe users", ask)

    async def set_password(
        self,
        user: str,
        mechanism: ScramMechanism,
        password: str,
        iterations: int = ITERATIONS_MIN,
    ) -> None:
        """Set a password; it does not leave this process, only what was computed from it."""
        salt = new_salt(self._cluster.rng)
        salted = await self._cluster.host.run_in_thread(
            lambda: mechanism.salted_password(password, salt, iterations)
        )
        upsertion = ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=salted,
        )
        await self._alter(AlterUserScramCredentialsRequest(upsertions=(upsertion,)))

    async def remove_password(self, user: str, mechanism: ScramMechanism) -> None:
        """Take a password away: nobody can log in with it any more."""
        deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
        await self._alter(AlterUserScramCredentialsRequest(deletions=(deletion,)))

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        async def ask(connection: Connection) -> Results[str, None]:
            answer = await connection.request(request, AlterUserScramCredentialsResponse)
            return sort_out(
                (each.user, each.error_code, f"user {each.user}", each.error_message, None)
                for each in answer.results
            )

        (await self._ask_controller("alter users", ask)).ok()
