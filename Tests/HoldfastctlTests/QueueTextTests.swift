import ArgumentParser
import ControlAPI
import Testing

@testable import holdfastctl

struct QueueTextTests {
    private static let times = TimeText(now: Timestamp(rawValue: 1_795_165_976_120), isAbsolute: false)

    @Test func `the outbox is a table with the server's answers`() {
        let accepted = Timestamp(rawValue: 1_795_165_964_120)
        let result = MessageQueueListMethod.Result(
            messages: [
                ListedMessage(
                    id: 7, topic: "secret\u{1B}", qos: .atLeastOnce, retain: false, size: 2048, acceptedAt: accepted,
                    state: .quarantined, reasonCode: 135, message: "not authorized"),
                ListedMessage(
                    id: 8, topic: "t", qos: .exactlyOnce, retain: false, size: 5, acceptedAt: accepted, state: .queued),
            ], next: 8)
        let lines = QueueText.lines(for: result, of: "main", state: nil, times: Self.times)
        #expect(lines.first == "main: the first 2 messages:")
        #expect(lines[3].hasPrefix("7   quarantined (not authorized)  1    2 KiB  12 s ago"))
        #expect(!lines[3].contains("\u{1B}"))
        #expect(lines.last == "There are more: --after 8")
        #expect(
            QueueText.lines(for: .init(messages: [], next: nil), of: "main", state: .quarantined, times: Self.times)
                == ["main: 0 quarantined messages."])
    }

    @Test func `the outbox of a session that has failed is not called empty`() {
        var status = SessionStatus(session: "main", state: .failed, since: Timestamp(rawValue: 0))
        #expect(!QueueText.isBusy(status))
        status.outbox.queued = 5
        #expect(QueueText.isBusy(status))
        status.outbox = .init(unknown: "the disk does not answer")
        #expect(QueueText.isBusy(status))
        let details = StatusDetails.lines(for: status, times: Self.times)
        #expect(details.contains("  Outbox    not known: the disk does not answer"))
        #expect(StatusDetails.table([status], times: Self.times)[1].contains(" ? "))
    }

    @Test func `a list of messages says whose they are, to programs too`() throws {
        let answer = JSONValue.object([
            "messages": .array([.object(["id": .integer(7)]), .object(["id": .integer(8)])]), "next": .null,
        ])
        let named = QueueText.named(answer, "gw-2")
        #expect(named["session"] == .string("gw-2"))
        #expect(named["next"] == .null)
        guard case .array(let rows)? = named["messages"] else { throw CommandFailure(.failed, "\(named)") }
        #expect(try FieldList(argument: "session,id")?.lines(rows) == ["gw-2\t7", "gw-2\t8"])
    }

    @Test func `a retry or drop says how many, and why not the others`() {
        var tally = QueueTally(verb: "dropped")
        tally.add(1, [])
        #expect(tally.sentence == "1 message dropped.")
        tally.add(2, [SkippedMessage(id: 9, code: "in-flight", message: "message 9 is on its way", hint: "wait")])
        #expect(tally.sentence == "3 messages dropped.")
        tally.rest = .init(consumers: 1, received: 3, publications: 0)
        #expect(tally.sentence == "3 accepted messages, 3 received messages and 1 durable consumer dropped.")
        #expect(tally.failures.flatMap(\.lines) == ["holdfastctl: message 9 is on its way", "  wait"])
    }

    @Test(arguments: [
        (["queue", "main"], true), (["queue", "list", "main", "--state", "in-flight", "--limit", "5", "-v"], true),
        (["queue", "main", "--state", "lost"], false), (["queue", "main", "--limit", "0"], false),
        (["queue", "retry", "main", "7", "8", "--json"], true), (["queue", "retry", "main", "--all"], true),
        (["queue", "retry", "main"], false), (["queue", "retry", "main", "7", "--all"], false),
        (["queue", "drop", "main", "--all", "--queued"], true), (["queue", "drop", "main", "7", "--queued"], false),
    ])
    func `the command line is checked`(arguments: [String], isValid: Bool) {
        #expect(((try? HoldfastControl.parseAsRoot(arguments)) != nil) == isValid)
    }

    @Test func `a call takes at most 1000 ids`() throws {
        let command = try HoldfastControl.parseAsRoot(["queue", "drop", "main"] + (1...1500).map(String.init))
        let drop = try #require(command as? QueueCommand.Drop)
        let counts = drop.selection.parameters().map { parameters in
            if case .ids(let ids) = parameters.selection { ids.count } else { 0 }
        }
        #expect(counts == [1000, 500])
    }
}
