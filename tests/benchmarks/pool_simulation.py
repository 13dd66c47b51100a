"""What a pool does with many stages, simulated: `python -m tests.benchmarks.pool_simulation`, seconds; see docs/operations.md.

Each part is a queue with what was measured of it (`bench_pool.py` measures it anew): the flow's process submits and writes down one stage
at a time, Prefect's server answers on one core, a worker asks for work now and then, starts a process for each stage, pulls, runs, pushes.
Workers are of one core each, on machines of their own; with `cores` they share one machine with the server and the flow, as in the
benchmark.
"""

import argparse
import random
from contextlib import suppress
from dataclasses import dataclass, fields

import simpy

from pipelines.execution import cancellation
from pipelines.machines import pool_runs, pools


@dataclass
class Costs:
    """Seconds, on 2 slow cores on 2026-11-24: by `bench_pool.py` with one worker and 200 stages; `submit`, `write` and `end` by hand."""

    submit: float = 0.12
    """Of the flow's process for each stage: its task, the order, the run."""
    write: float = 0.15
    """The same: the answer, its files, the lock file."""
    serve: float = 0.8
    """Of the server for each stage: some forty requests, among them states, logs, events."""
    poll: float = 0.028
    """Of the server for each question of a worker that has nothing to do, or of the flow."""
    every: float = 1.0
    """From one such question of a worker to the next."""
    ask: float = 0.009
    """Of the server for each question of a stage at work, whether it was cancelled."""
    start: float = 0.3
    """Of a worker's core until the stage's flow begins: a fork, its side of a handful of requests."""
    prepare: float = 0.1
    """Of a worker's core: the worktree, and what is pulled."""
    repro: float = 1.0
    """Of a worker's core: DVC around the stage's own process, without that."""
    push: float = 0.4
    """To a store on the same machine; a model of 440 MB over 1 Gbit/s takes 4 s more, as it does where it is pulled."""
    end: float = 0.1
    """Of a worker's core: the process's end."""


def simulate(stages: int, workers: int, seconds: float, costs: Costs, cores: int | None = None, batch: int = 1, seed: int = 1) -> float:
    """Seconds until `stages` independent stages of `seconds` are done and written down; `batch` of them in one run."""
    world, chance = simpy.Environment(), random.Random(seed)
    flow, server = simpy.Resource(world), simpy.Resource(world)
    machine = simpy.Resource(world, cores) if cores else None
    ready, units = simpy.Store(world), -(-stages // batch)
    queued, sent = simpy.Resource(world, pools.QUEUED), simpy.Resource(world, pools.IN_FLIGHT)

    def at(place: simpy.Resource, cost: float):
        with place.request() as turn:
            yield turn
            yield from busy(cost)

    def busy(cost: float):
        """On a core, where all share one machine, in slices as a system shares them out."""
        if machine is None:
            yield world.timeout(cost)
            return
        while cost > 0:
            with machine.request() as turn:
                yield turn
                yield world.timeout(min(cost, 0.1))
            cost -= 0.1

    def submit():
        for _ in range(units):
            places = queued.request(), sent.request()
            yield simpy.AllOf(world, places)
            yield from at(flow, costs.submit * batch)
            yield from at(server, costs.serve / 4)
            yield ready.put(places)

    def worker():
        yield world.timeout(chance.random())
        while True:
            yield from at(server, costs.poll)
            if not ready.items:
                yield world.timeout(costs.every)
                continue
            waiting, place = yield ready.get()
            world.process(seen(waiting))
            yield from at(server, costs.serve / 4)
            yield from busy(costs.start + costs.prepare)
            at_work = world.process(asking())
            for _ in range(batch):
                yield from busy(costs.repro)
                yield world.timeout(seconds)
            yield world.timeout(costs.push)
            at_work.interrupt()
            yield from at(server, costs.serve / 2)
            world.process(written(place))
            yield from busy(costs.end)

    def seen(waiting):
        """By the flow, which may send another one then."""
        yield world.timeout(pool_runs.ALL * pool_runs.POLL * chance.random())
        queued.release(waiting)

    def asking():
        with suppress(simpy.Interrupt):
            while True:
                yield world.timeout(cancellation.EVERY)
                yield from at(server, costs.ask)

    done, over = [0], world.event()

    def written(place):
        yield world.timeout(pool_runs.POLL * chance.random())
        yield from at(server, costs.poll)
        yield from at(flow, costs.write * batch)
        sent.release(place)
        done[0] += 1
        if done[0] == units:
            over.succeed()

    world.process(submit())
    for _ in range(workers):
        world.process(worker())
    world.run(over)
    return world.now


def table(costs: Costs, stages: int = 1000) -> list[list[str]]:
    """Rows of the docs: how many times the ideal, which is the stages' own seconds shared out over the workers."""
    rows = []
    for workers in (1, 4, 16, 64, 256):
        cells = [str(workers)]
        for seconds, batch in ((1, 1), (1, 20), (60, 1), (600, 1)):
            ideal = seconds * -(-stages // workers)
            cells.append(f"{simulate(stages, workers, seconds, costs, batch=batch) / ideal:.2f}")
        rows.append(cells)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for cost in fields(Costs):
        parser.add_argument(f"--{cost.name}", type=float, default=cost.default)
    given = parser.parse_args()
    print("1,000 stages, times the ideal: workers, 1 s, 1 s by twenties, 60 s, 600 s")
    for row in table(Costs(**vars(given))):
        print("".join(f"{cell:>10}" for cell in row))
