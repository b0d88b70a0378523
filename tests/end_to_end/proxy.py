"""A TCP proxy whose network misbehaves as a test says: late, slow, cut, silent, damaged, and whole again."""

import asyncio
import contextlib
import socket
import struct
import threading

# Little is on its way at one time, so that what waits stays with the sender, as on a slow line.
CHUNK = 4096
CHUNKS_WAITING = 8


class Cut(Exception):
    """The connection ends here."""


class Way:
    """One direction through a proxy, of all its connections. What is set holds from the next bytes on."""

    def __init__(self):
        self.bytes = 0  # that have been read
        self.heal()

    def heal(self):
        self.delay = 0.0  # seconds
        self.bytes_per_second = None
        self.dropped = False  # read, and forgotten
        self.held = False  # not read; what is on its way waits
        self.change = None  # of the next piece of at least change_bytes bytes: a function that gives the pieces instead
        self.change_bytes = 1

    def change_next(self, change, size=1):
        self.change, self.change_bytes = change, size

    def pieces(self, chunk):
        if self.change is None or len(chunk) < self.change_bytes:
            return [chunk]
        change, self.change = self.change, None
        return change(chunk)


def flipped(chunk):
    """One bit, in the middle."""
    middle = len(chunk) // 2
    return [chunk[:middle] + bytes([chunk[middle] ^ 16]) + chunk[middle + 1:]]


def twice(chunk):
    return [chunk, chunk]


def swapped(chunk):
    middle = len(chunk) // 2
    return [chunk[middle:], chunk[:middle]]


def cut_within(chunk):
    """The first half, and then the end of the connection."""
    return [chunk[:len(chunk) // 2], None]


class Connection:
    """From a client to the target, each piece forwarded by two tasks a direction: one reads, one writes."""

    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.tasks = []

    def start(self):
        for source, sink, way in [(self.client, self.server, self.proxy.up), (self.server, self.client, self.proxy.down)]:
            waiting = asyncio.Queue(CHUNKS_WAITING)
            self.tasks.append(asyncio.ensure_future(self.read(source, way, waiting)))
            self.tasks.append(asyncio.ensure_future(self.write(sink, way, waiting)))

    async def read(self, source, way, waiting):
        loop = asyncio.get_running_loop()
        chunk = True
        while chunk:
            while way.held:
                await asyncio.sleep(0.01)
            try:
                chunk = await loop.sock_recv(source, CHUNK)
            except OSError:
                chunk = b""
            way.bytes += len(chunk)
            while way.held or (way.dropped and not chunk):
                await asyncio.sleep(0.01)
            if not way.dropped:
                await waiting.put((loop.time() + way.delay, chunk))

    async def write(self, sink, way, waiting):
        loop = asyncio.get_running_loop()
        try:
            while True:
                due, chunk = await waiting.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not chunk:
                    return self.cut("fin")
                for piece in way.pieces(chunk):
                    if piece is None:
                        return self.cut(self.proxy.cut_how)
                    await loop.sock_sendall(sink, piece)
                    if way.bytes_per_second:
                        await asyncio.sleep(len(piece) / way.bytes_per_second)
        except OSError:
            self.cut("fin")

    def cut(self, how, sides=("client", "server")):
        """`how`: "rst" or "fin". A side that is not named stays open and is silent."""
        for task in self.tasks:
            task.cancel()
        for side in sides:
            end = getattr(self, side)
            if how == "rst":
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # In the next turn: the tasks let go of it first.
            asyncio.get_running_loop().call_soon(end.close)


class Proxy:
    """Listens on loopback and forwards to `target`, a port there. `up` is the way to the target, `down` the one back.

    Runs in a thread of its own until the end of a `with` block; others may change `up` and `down` and call its methods.
    """

    def __init__(self, target=None):
        self.target = target
        self.up, self.down = Way(), Way()
        self.cut_how = "fin"
        self.shut = False  # closes every new connection at once
        self.accepted = 0
        self.connections = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        accepting = self.loop.create_task(self.accept())
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_forever()
        accepting.cancel()
        for connection in self.connections:
            for task in connection.tasks:
                task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))

    async def accept(self):
        while True:
            client, _ = await self.loop.sock_accept(self.listener)
            self.accepted += 1
            if self.shut:
                client.close()
                continue
            server = socket.socket()
            for end in (client, server):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * CHUNK)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * CHUNK)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setblocking(False)
            try:
                await self.loop.sock_connect(server, ("127.0.0.1", self.target))
            except OSError:
                client.close()
                server.close()
                continue
            connection = Connection(self, client, server)
            self.connections.append(connection)
            connection.start()

    def heal(self):
        """New connections are well; on old ones goes on what was held back."""
        self.shut = False
        for way in (self.up, self.down):
            way.heal()

    def cut(self, how, sides=("client", "server")):
        """Every connection, now; those after it live."""
        def now():
            while self.connections:
                self.connections.pop().cut(how, sides)
        asyncio.run_coroutine_threadsafe(self.within(now), self.loop).result(10)

    @staticmethod
    async def within(function):
        function()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        self.listener.close()
        for connection in self.connections:
            connection.client.close()
            connection.server.close()
