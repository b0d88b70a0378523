"""LighthouseClient of an unmodified torchft against the lighthouse in TESON_LIGHTHOUSE. One line a check; the last line of standard error is
"all passed" if so."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import time
import traceback
from datetime import timedelta

from lighthouse_class import LighthouseServer
from torchft.coordination import LighthouseClient

SECONDS = timedelta(seconds=20)
pool = concurrent.futures.ThreadPoolExecutor(16)


def serve(min_replicas, **options):
    return LighthouseServer("127.0.0.1:0", min_replicas, **options)


def client(server):
    return LighthouseClient(server.address(), timedelta(seconds=10))


def ask(server, replica_id, timeout=SECONDS, **fields):
    """A member with a connection of its own asks, in the background."""
    one = client(server)
    return pool.submit(lambda: one.quorum(replica_id, timeout, **fields))


def ids(quorum):
    return [member.replica_id for member in quorum.participants]


def equal(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def a_lone_member_gets_back_what_it_sent():
    server = serve(1)
    data = {"text": "Tesón ☃", "number": 1.5, "nested": {"list": [1, None, True]}}
    began = time.time()
    quorum = client(server).quorum("alone", SECONDS, "http://here:1", "there:2", 7, 3, False, data)
    assert time.time() - began < 5
    equal(quorum.quorum_id, 1)
    (member,) = quorum.participants
    equal((member.replica_id, member.address, member.store_address), ("alone", "http://here:1", "there:2"))
    equal((member.step, member.world_size, member.shrink_only, member.data), (7, 3, False, data))
    assert abs(quorum.created.seconds - began) < 5, quorum.created.seconds


def unset_fields_stay_unset():
    (member,) = client(serve(1)).quorum("alone", SECONDS).participants
    equal((member.data, member.step, member.shrink_only), (None, 0, False))


def members_get_one_sorted_quorum_whose_id_stays():
    server = serve(4)
    members = [client(server) for _ in range(4)]
    for _ in range(25):
        calls = [pool.submit(members[i].quorum, f"member_{i}", SECONDS) for i in (2, 0, 3, 1)]
        quorums = [call.result() for call in calls]
        for quorum in quorums:
            equal(ids(quorum), ["member_0", "member_1", "member_2", "member_3"])
            equal(quorum.quorum_id, 1)


def a_newcomer_raises_the_id():
    server = serve(1)
    equal(ask(server, "a").result().quorum_id, 1)
    newcomer = ask(server, "b")
    time.sleep(0.3)
    equal(ids(ask(server, "a").result()), ["a", "b"])
    equal(newcomer.result().quorum_id, 2)


def shrink_only_leaves_a_newcomer_waiting():
    server = serve(1)
    ask(server, "a").result()
    newcomer = ask(server, "b")
    time.sleep(0.3)
    equal(ids(ask(server, "a", shrink_only=True).result()), ["a"])
    assert not newcomer.done()
    equal(ids(ask(server, "a").result()), ["a", "b"])
    newcomer.result()


def heartbeats_make_others_wait_for_the_join_timeout():
    server = serve(1, join_timeout_ms=700)
    client(server).heartbeat("straggler")
    began = time.monotonic()
    first, second = ask(server, "a"), ask(server, "b")
    equal(ids(first.result()), ["a", "b"])
    second.result()
    waited = time.monotonic() - began
    assert 0.6 < waited < 5, waited


def a_call_without_a_quorum_ends_in_a_timeout_error():
    server = serve(2)
    began = time.monotonic()
    try:
        client(server).quorum("alone", timedelta(milliseconds=300))
        raise AssertionError("a quorum of one")
    except TimeoutError:
        pass
    waited = time.monotonic() - began
    assert 0.25 < waited < 5, waited


WAIT_FOR_EVER = """
import sys
from datetime import timedelta
from torchft.coordination import LighthouseClient
one = LighthouseClient(sys.argv[1], timedelta(seconds=10))
print("asking", flush=True)
one.quorum("killed", timedelta(seconds=100))
"""


def a_killed_member_is_in_no_later_quorum():
    server = serve(2, join_timeout_ms=500)
    killed = subprocess.Popen([sys.executable, "-c", WAIT_FOR_EVER, server.address()], stdout=subprocess.PIPE)
    killed.stdout.readline()
    time.sleep(0.5)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    time.sleep(0.2)
    first, second = ask(server, "a"), ask(server, "b")
    equal(ids(first.result()), ["a", "b"])
    second.result()


def a_client_finds_a_restarted_lighthouse_again():
    first = serve(1)
    one = client(first)
    one.quorum("a", SECONDS)
    address = first.address()
    first.shutdown()
    try:
        one.heartbeat("a", timedelta(seconds=2))
        raise AssertionError("a heartbeat without a lighthouse")
    except (RuntimeError, TimeoutError):
        pass
    second = LighthouseServer(address.removeprefix("http://"), 1)
    equal(second.address(), address)
    one.heartbeat("a", SECONDS)
    equal(ids(one.quorum("a", SECONDS)), ["a"])


def many_heartbeats_are_answered():
    one = client(serve(1))
    for _ in range(500):
        one.heartbeat("a", SECONDS)


def main():
    failed = False
    for check in (a_lone_member_gets_back_what_it_sent, unset_fields_stay_unset, members_get_one_sorted_quorum_whose_id_stays,
                  a_newcomer_raises_the_id, shrink_only_leaves_a_newcomer_waiting,
                  heartbeats_make_others_wait_for_the_join_timeout, a_call_without_a_quorum_ends_in_a_timeout_error,
                  a_killed_member_is_in_no_later_quorum, a_client_finds_a_restarted_lighthouse_again,
                  many_heartbeats_are_answered):
        name = check.__name__.replace("_", " ")
        try:
            check()
            print(f"ok {name}", flush=True)
        except BaseException as error:
            failed = True
            traceback.print_exc()
            print(f"FAILED {name}: {error}", flush=True)
    if not failed:
        print("all passed", file=sys.stderr, flush=True)
    os._exit(failed)  # calls that hang must not hold the program


if __name__ == "__main__":
    main()
