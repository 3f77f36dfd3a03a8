import ControlAPI
import NIOCore

/// The calls of one peer that have begun: the batches that they belong to, and the reads that wait for their turn.
struct RunningCalls {
    /// The number of calls that are not answered yet.
    private(set) var unanswered = 0
    private var last = 0
    /// The number of calls that are answered.
    var answeredSoFar: Int { last - unanswered }
    /// The number of tasks of calls that have not started running. Calls that begin later must not overtake them.
    var tasksAhead = 0
    var batches = CallBatches()
    private var waitingReads = CircularBuffer<(call: RunningCall, waiting: WaitingCall)>()
    /// The calls that run in a task of their own: all except publishes and most acknowledgements.
    private var tasks: [Int: Task<Void, Never>] = [:]

    mutating func begin(_ call: WaitingCall, _ kind: CallKind, answer: Int) -> RunningCall {
        unanswered += 1
        last += 1
        return RunningCall(
            number: last, id: call.request.id, kind: kind, bytes: call.bytes, answer: answer, batch: call.batch)
    }

    /// Counts a call as answered.
    mutating func answered() { unanswered -= 1 }

    /// Keeps a read until it is its turn.
    mutating func wait(_ call: RunningCall, _ waiting: WaitingCall) { waitingReads.append((call, waiting)) }

    mutating func nextRead() -> (call: RunningCall, waiting: WaitingCall)? { waitingReads.popFirst() }

    mutating func taskBegan(_ call: RunningCall, _ task: Task<Void, Never>) { tasks[call.number] = task }

    mutating func taskEnded(_ call: RunningCall) { tasks[call.number] = nil }

    /// The peer is gone: calls that are still running must leave nothing behind. Those that only wait for an answer end.
    mutating func abandon() {
        batches = CallBatches()
        waitingReads = []
        for task in tasks.values { task.cancel() }
    }
}
