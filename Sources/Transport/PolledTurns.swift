public import NIOCore

/// Turns for work of which more has arrived than an event loop should do at once. They are taken after the loop has
/// polled its descriptors, so what arrives for others comes in between, however many wait for a turn.
///
/// A timer is not enough for that: of two such turns, each may last longer than the other's timer, and the loop runs
/// everything that is due before it polls.
///
/// Belongs to one event loop. One per process is enough.
public final class PolledTurns: Sendable {
    /// Turns between two polls.
    static let turnsPerPoll = 8

    private struct State {
        var poll: LoopPoll?
        var isAsked = false
        var waiting = CircularBuffer<() -> Void>()
    }

    private let eventLoop: any EventLoop
    private let state: NIOLoopBoundBox<State>

    /// Creates turns for a loop that has nothing to poll, as in virtual time: each comes after half a millisecond.
    public init(eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
        state = NIOLoopBoundBox.makeBoxSendingValue(State(), eventLoop: eventLoop)
    }

    /// Creates turns that come after a poll of the loop. They take two descriptors until ``close()``.
    public static func open(on loop: any EventLoop) async throws -> PolledTurns {
        let turns = PolledTurns(eventLoop: loop)
        let poll = try await LoopPoll.open(on: loop) { [weak turns] in turns?.polled() }
        try await loop.submit { turns.state.value.poll = poll }.get()
        return turns
    }

    /// Calls `turn` once, after those that wait already.
    public func wait(_ turn: @escaping () -> Void) {
        guard state.value.poll != nil else { return callLater(turn) }
        state.value.waiting.append(turn)
        ask()
    }

    /// Releases the descriptors. Turns still come, but no longer after a poll.
    public func close() {
        state.value.poll.take()?.close()
        while let turn = state.value.waiting.popFirst() { callLater(turn) }
    }

    private func callLater(_ turn: @escaping () -> Void) {
        _ = eventLoop.assumeIsolated().scheduleTask(in: .microseconds(500)) { turn() }
    }

    private func ask() {
        guard !state.value.isAsked, let poll = state.value.poll else { return }
        state.value.isAsked = true
        poll.ask()
    }

    private func polled() {
        state.value.isAsked = false
        for _ in 0..<min(Self.turnsPerPoll, state.value.waiting.count) {
            let turn = state.value.waiting.popFirst()
            turn?()
        }
        if !state.value.waiting.isEmpty { ask() }
    }
}
