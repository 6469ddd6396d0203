"""Reads a topic, has what it asks for spoken and stored, announces it, and commits: in that order,
so that a kill at any moment costs a second look and never a sound. Each partition is finished in
its order. Whatever lasts, the broker is polled, so that the group never takes this one for dead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import chain

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from ...errors import KaikouError
from .meters import Meters
from .options import KafkaOptions
from .partition import Partition
from .speaker import Speaker
from .task import Task, task_of

IDLE_S = 0.2  # one look for messages while there is nothing to do
FILL_S = 0.02  # one more look before a batch that is not full begins
ANSWER_S = 0.005  # one look for the broker's answer to a commit
PAUSE_AFTER_S = 1.0  # of work: then the partitions are paused and the broker is polled
CLOSE_S = 5.0  # for the last announcements and the last commit
COMMITTED_S = 10.0  # for the broker to say what was committed
log = logging.getLogger(__name__)


class BrokerFailed(KaikouError):
    """Kafka cannot go on with this client: the process must be started anew."""

    status, kind, code = 503, "broker_error", "broker_failed"


class BookConsumer:
    """`run` until `stop` is called; owns none of what it is given."""

    def __init__(self, options: KafkaOptions, producer: Producer, speaker: Speaker, meters: Meters):
        self._options, self._producer, self._speaker = options, producer, speaker
        self._meters = meters
        self._partitions: dict[int, Partition] = {}  # that are assigned
        self._paused: set[int] = set()
        self._pending_commit: list[TopicPartition] | None = None  # None: the broker has answered
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="speak")
        self._speaking: Future | None = None
        self._batch_tasks: list[Task] = []
        self._stop_at: float | None = None  # when what is in hand is given back
        config = options.consumer_config() | {"on_commit": self._on_commit}
        self._consumer = Consumer(config, logger=log)

    def stop(self) -> None:
        """Finish what is in hand, for a while, and return. May be called from a signal handler."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self._options.grace_s

    @property
    def _is_over(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    def run(self) -> None:
        """Raises BrokerFailed."""
        self._consumer.subscribe(
            [self._options.topic_in],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )
        try:
            while self._stop_at is None:
                self._step()
            self._finish()
        finally:
            self._speaker.cancel()
            self._consumer.close()
            self._pool.submit(self._speaker.close)
            self._pool.shutdown()

    def _step(self) -> None:
        if self._meters.is_due():
            self._measure()
        if self._speaking is not None:
            self._wait_for_sounds()
            return
        room = self._options.batch - self._n_in_hand()
        is_idle = not self._open_tasks()
        if is_idle or room > 0:
            self._poll(room, IDLE_S if is_idle else FILL_S)
        self._announce()
        tasks = self._open_tasks()[: self._options.batch]
        if tasks:
            self._batch_tasks = tasks
            self._speaking = self._pool.submit(self._speaker.speak, tasks)

    def _wait_for_sounds(self) -> None:
        wait([self._speaking], PAUSE_AFTER_S)
        if not self._speaking.done():
            self._poll(0, 0.0)
            return
        self._speaking.result()
        tasks, self._speaking = self._batch_tasks, None
        self._announce()
        for state in self._partitions.values():
            tried = [task for task in tasks if task in state.tasks]
            if any(not task.is_settled for task in tried):
                self._rest(state, tried)

    def _rest(self, state: Partition, tried: Iterable[Task]) -> None:
        state.rest()
        for task in tried:
            if task.is_settled or task.error is None:
                continue
            (self._meters.waits if task.is_waiting else self._meters.retries).inc()
            log.warning("offset %d of %d waits: %s", task.offset, task.partition, task.error.en)

    def _finish(self) -> None:
        """What the studio still makes has until the end of the grace to be announced; the rest
        stays uncommitted, for another consumer.
        """
        while self._speaking is not None and not self._is_over:
            self._wait_for_sounds()
        if self._speaking is not None:
            self._speaker.cancel()
            wait([self._speaking])
        self._stop_at = time.monotonic() + CLOSE_S
        self._announce()
        self._measure()
        log.info("leaving the group, %d messages given back", self._n_in_hand())

    # ---- what is in hand -------------------------------------------------------------------------
    def _n_in_hand(self) -> int:
        return sum(len(state.tasks) for state in self._partitions.values())

    def _open_tasks(self) -> list[Task]:
        return [task for state in self._partitions.values() for task in state.open_tasks()]

    def _poll(self, room: int, seconds: float) -> None:
        """Serve the group, and take at most `room` messages, none of a partition that rests; with
        no room, or no time, all partitions are paused.
        """
        room = 0 if self._stop_at is not None else room
        rests = {
            number for number, state in self._partitions.items() if room <= 0 or state.is_resting
        }
        if rests != self._paused:
            self._consumer.pause(self._named(rests - self._paused))
            self._consumer.resume(self._named(self._paused - rests))
            self._paused = rests
        for message in self._consumer.consume(max(1, room), seconds):
            self._take(message)
        self._meters.in_hand.set(self._n_in_hand())

    def _named(self, numbers: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._options.topic_in, number) for number in numbers]

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            check(error)
            return
        state = self._partitions[message.partition()]
        state.add(
            task_of(
                message.topic(),
                message.partition(),
                message.offset(),
                message.key(),
                message.value(),
                message.headers() or (),
                state.attempts.get(message.offset(), 0),
            )
        )

    # ---- announce, then commit -------------------------------------------------------------------
    def _announce(self) -> None:
        """Of each partition what is settled without a gap."""
        answers: dict[Task, KafkaError | None] = {}
        settled = {state: state.settled_tasks() for state in self._partitions.values()}
        n_produced = 0
        for task in chain.from_iterable(settled.values()):
            self._produce(task, answers)
            n_produced += 1
        while self._producer.flush(PAUSE_AFTER_S) and len(answers) < n_produced:
            if self._is_over:
                break
            self._poll(0, 0.0)
        for state, tasks in settled.items():
            for task in tasks:
                if answers.get(task, True) is not None:
                    state.rest()
                    break
                state.go_on()
                state.drop_first()
                (self._meters.dead if task.is_dead else self._meters.done).inc()
        self._commit()

    def _produce(self, task: Task, answers: dict[Task, KafkaError | None]) -> None:
        topic, value, headers = self._options.topic_out, None, None
        if task.is_dead:
            topic = self._options.topic_dead
            value, headers = task.dead()
            log.warning("offset %d of %d is dead: %s", task.offset, task.partition, task.error.en)
        else:
            value = task.done()
        answer = partial(self._on_delivery, task, answers)
        try:
            self._producer.produce(topic, value, task.key, headers=headers, on_delivery=answer)
        except KafkaException as error:
            answer(error.args[0], None)

    def _on_delivery(
        self, task: Task, answers: dict, error: KafkaError | None, _: Message | None
    ) -> None:
        answers[task] = error
        if error is not None:
            check(error)
            if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE):
                task.is_value_left_out = True

    def _commit(self) -> None:
        """The broker has it when this returns, or the partitions rest and it is tried again."""
        due = {number: state.to_commit() for number, state in self._partitions.items()}
        offsets = [
            TopicPartition(self._options.topic_in, number, *now)
            for number, now in due.items()
            if now is not None
        ]
        if not offsets:
            return
        self._pending_commit, begin = offsets, time.monotonic()
        self._consumer.commit(offsets=offsets, asynchronous=True)
        while self._pending_commit is not None and not self._is_over:
            # the next batch comes in meanwhile: pausing would throw away what was fetched
            is_long = time.monotonic() - begin > PAUSE_AFTER_S
            room = self._options.batch - self._n_in_hand()
            self._poll(0 if is_long else max(1, room), ANSWER_S)

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self._pending_commit = None
        for place in offsets:
            state = self._partitions.get(place.partition)
            problem = error or place.error
            if state is None:
                continue
            if problem is None:
                state.committed_position = place.offset, place.metadata or ""
            else:
                check(problem)
                state.rest()

    # ---- the group -------------------------------------------------------------------------------
    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            offsets = consumer.committed(partitions, COMMITTED_S) if partitions else []
        except KafkaException as error:
            log.warning("the attempts that were counted are not known: %s", error)
            offsets = partitions
        for place in offsets:
            self._partitions[place.partition] = Partition(place.offset, place.metadata or "")
            self._paused.add(place.partition)  # one that was lost while paused comes back so
        log.info("partitions: %s", sorted(self._partitions))

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """What is in hand of them belongs to another consumer now, which finds the sounds."""
        for place in partitions:
            self._partitions.pop(place.partition, None)
            self._paused.discard(place.partition)

    def _measure(self) -> None:
        lag = 0
        for number, state in self._partitions.items():
            place = TopicPartition(self._options.topic_in, number)
            try:
                begin, end = self._consumer.get_watermark_offsets(place, timeout=PAUSE_AFTER_S)
            except KafkaException:
                return
            lag += max(0, end - (state.committed_position or (begin,))[0])
        self._meters.lag.set(lag)
        self._meters.report()


def check(error: KafkaError) -> None:
    """Of what the client says: a fatal error ends the process, the rest passes or is tried again.
    Raises BrokerFailed.
    """
    if error.fatal() or error.code() == KafkaError._FATAL:
        raise BrokerFailed("broker_failed", reason=error.str())
    log.warning("Kafka: %s", error.str())
