"""The first generation of A2A as strict models, after the JSON schema of its release 0.1."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class TextPart(_Strict):
    type: Literal["text"]
    text: str
    metadata: dict[str, Any] = {}


class FileContent(_Strict):
    name: str = ""
    mime_type: str = ""
    bytes: str = ""
    uri: str = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> "FileContent":
        assert ("bytes" in self.model_fields_set) != ("uri" in self.model_fields_set)
        return self


class FilePart(_Strict):
    type: Literal["file"]
    file: FileContent
    metadata: dict[str, Any] = {}


class DataPart(_Strict):
    type: Literal["data"]
    data: dict[str, Any]
    metadata: dict[str, Any] = {}


Part = Annotated[TextPart | FilePart | DataPart, Field(discriminator="type")]


class Message(_Strict):
    role: Literal["user", "agent"]
    parts: list[Part]
    metadata: dict[str, Any] = {}


class TaskStatus(_Strict):
    state: Literal["submitted", "working", "input-required", "completed", "canceled", "failed", "unknown"]
    message: Message | None = None
    timestamp: AwareDatetime = Field(strict=False)


class Artifact(_Strict):
    name: str = ""
    description: str = ""
    parts: list[Part]
    index: int = 0
    append: bool = False
    last_chunk: bool = False
    metadata: dict[str, Any] = {}


class Task(_Strict):
    id: str
    session_id: str = ""
    status: TaskStatus
    artifacts: list[Artifact] = []
    history: list[Message] = []
    metadata: dict[str, Any] = {}


class TaskStatusUpdateEvent(_Strict):
    id: str
    status: TaskStatus
    final: bool
    metadata: dict[str, Any] = {}


class TaskArtifactUpdateEvent(_Strict):
    id: str
    artifact: Artifact
    metadata: dict[str, Any] = {}


class AuthenticationInfo(_Strict):
    schemes: list[str]
    credentials: str = ""


class PushNotificationConfig(_Strict):
    url: str
    token: str = ""
    authentication: AuthenticationInfo | None = None


class TaskPushNotificationConfig(_Strict):
    id: str
    push_notification_config: PushNotificationConfig
