"""Client for Isolet: sandboxes with persistent shells. Sync and asyncio.

Example::

    from isolet import Isolet

    with Isolet() as client, client.sandbox("demo") as sandbox:
        sandbox.exec("cd /tmp && export GREETING=hello")
        print(sandbox.exec("pwd; echo $GREETING").stdout)

:class:`AsyncIsolet` offers the same methods for asyncio; they are awaited.
"""

from ._async.client import AsyncIsolet
from ._async.commands import AsyncExecStream
from ._async.context import AsyncCodeStream, AsyncContext
from ._async.dial import AsyncPortConnection
from ._async.events import AsyncEvents, AsyncWatch
from ._async.files import AsyncFileStream
from ._async.processes import AsyncProcess
from ._async.sandbox import AsyncSandbox
from ._async.session import AsyncSession
from ._async.shell import AsyncCommand, AsyncShell
from ._async.terminal import AsyncTerminal
from ._sync.client import Isolet
from ._sync.commands import ExecStream
from ._sync.context import CodeStream, Context
from ._sync.dial import PortConnection
from ._sync.events import Events, Watch
from ._sync.files import FileStream
from ._sync.processes import Process
from ._sync.sandbox import Sandbox
from ._sync.session import Session
from ._sync.shell import Command, Shell
from ._sync.terminal import Terminal
from .account import AccountUsage, AuditEntry
from .change_models import ChangedFile, FileChanges
from .code import CodeError, CodeEvent, CodeResult, ContextInfo, Execution
from .errors import (
    BadRequestError,
    CommandError,
    ConflictError,
    ForbiddenError,
    GitError,
    IsoletError,
    NotFoundError,
    NotSupportedError,
    ProcessEndedError,
    RefusedError,
    ServerError,
    ShellClosedError,
    TerminalClosedError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
    UsageError,
    WaitTimeoutError,
)
from .file_models import SavedFile
from .git import GitCheckout
from .image_models import CommittedImage, ImageInfo, PrivateFile
from .key_models import ApiKey, CreatedApiKey, CurrentApiKey
from .models import (
    ExposedPort,
    FileAccess,
    FileEvent,
    FileInfo,
    FoundLine,
    FoundLogLine,
    ListeningPort,
    LostState,
    PortLink,
    ProcessInfo,
    ProcessLog,
    ProcessOutput,
    RecoveredSandbox,
    RestoredSandbox,
    SandboxEvent,
    SandboxInfo,
    SearchResult,
    SessionInfo,
    Snapshot,
    SnapshotChange,
    Usage,
)
from .network_models import Credential, CredentialInfo, Denied, NetworkInfo, NetworkRules, Traffic
from .node_models import DrainLeft, DrainProgress, Node, NodeList
from .results import ExecResult, Output, Truncated
from .tenant import TenantSession
from .terminal import (
    Recording,
    TerminalAttached,
    TerminalClient,
    TerminalClients,
    TerminalEvent,
    TerminalExit,
    TerminalInfo,
    TerminalOutput,
    TerminalRefused,
    TerminalSize,
    TerminalSnapshot,
    Ticket,
)
from .webhook_models import CreatedWebhook, Webhook, WebhookDelivery, WebhookTest

__version__ = "0.1.0"

__all__ = [
    "AccountUsage",
    "ApiKey",
    "AsyncCodeStream",
    "AsyncCommand",
    "AsyncContext",
    "AsyncEvents",
    "AsyncExecStream",
    "AsyncFileStream",
    "AsyncIsolet",
    "AsyncPortConnection",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSession",
    "AsyncShell",
    "AsyncTerminal",
    "AsyncWatch",
    "AuditEntry",
    "BadRequestError",
    "ChangedFile",
    "CodeError",
    "CodeEvent",
    "CodeResult",
    "CodeStream",
    "Command",
    "CommandError",
    "CommittedImage",
    "ConflictError",
    "Context",
    "ContextInfo",
    "CreatedApiKey",
    "CreatedWebhook",
    "Credential",
    "CredentialInfo",
    "CurrentApiKey",
    "Denied",
    "DrainLeft",
    "DrainProgress",
    "Events",
    "ExecResult",
    "ExecStream",
    "Execution",
    "ExposedPort",
    "FileAccess",
    "FileChanges",
    "FileEvent",
    "FileInfo",
    "FileStream",
    "ForbiddenError",
    "FoundLine",
    "FoundLogLine",
    "GitCheckout",
    "GitError",
    "ImageInfo",
    "Isolet",
    "IsoletError",
    "ListeningPort",
    "LostState",
    "NetworkInfo",
    "NetworkRules",
    "Node",
    "NodeList",
    "NotFoundError",
    "NotSupportedError",
    "Output",
    "PortConnection",
    "PortLink",
    "PrivateFile",
    "Process",
    "ProcessEndedError",
    "ProcessInfo",
    "ProcessLog",
    "ProcessOutput",
    "Recording",
    "RecoveredSandbox",
    "RefusedError",
    "RestoredSandbox",
    "Sandbox",
    "SandboxEvent",
    "SandboxInfo",
    "SavedFile",
    "SearchResult",
    "ServerError",
    "Session",
    "SessionInfo",
    "Shell",
    "ShellClosedError",
    "Snapshot",
    "SnapshotChange",
    "TenantSession",
    "Terminal",
    "TerminalAttached",
    "TerminalClient",
    "TerminalClients",
    "TerminalClosedError",
    "TerminalEvent",
    "TerminalExit",
    "TerminalInfo",
    "TerminalOutput",
    "TerminalRefused",
    "TerminalSize",
    "TerminalSnapshot",
    "Ticket",
    "TooManyRequestsError",
    "Traffic",
    "Truncated",
    "UnauthorizedError",
    "UnreachableError",
    "Usage",
    "UsageError",
    "WaitTimeoutError",
    "Watch",
    "Webhook",
    "WebhookDelivery",
    "WebhookTest",
]
