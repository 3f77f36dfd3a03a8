import Glibc
import Testing

@testable import Systemd

@Suite struct `The journal` {
    @Test func `fields are written unchanged, even with newlines`() throws {
        let name = try #require(JournalFieldName("HOLDFAST_X"))
        let (bytes, ranges) = Journal.encode([
            .message("one\ntwo"), .priority(.warning), .messageID(.started),
            JournalField(name, bytes: [0, 10, 61, 255]), JournalField(.session, ""),
        ])
        let parts = ranges.map { Array(bytes[$0]) }
        #expect(
            parts == [
                Array("MESSAGE=one\ntwo".utf8), Array("PRIORITY=4".utf8),
                Array("MESSAGE_ID=fd5b3ba862e341cd953b60be3f2d9a53".utf8),
                Array("HOLDFAST_X=".utf8) + [0, 10, 61, 255], Array("HOLDFAST_SESSION=".utf8),
            ])
        #expect(ranges.last?.upperBound == bytes.count)
    }

    @Test func `no fields give no bytes`() {
        let (bytes, ranges) = Journal.encode([])
        #expect(bytes.isEmpty)
        #expect(ranges.isEmpty)
    }

    @Test func `the caller's place has three fields`() {
        #expect(
            JournalField.code(file: "Store.swift", line: 12, function: "commit()") == [
                JournalField(.codeFile, "Store.swift"), JournalField(.codeLine, "12"),
                JournalField(.codeFunction, "commit()"),
            ])
    }

    @Test(arguments: ["A", "MESSAGE", "HOLDFAST_RETRY_USEC", "X9_", String(repeating: "A", count: 64)])
    func `valid field names are accepted`(name: String) {
        #expect(JournalFieldName(name)?.description == name)
    }

    @Test(arguments: [
        "", "_PID", "9A", "message", "A B", "A=B", "A\nB", "Ä", "A-B", String(repeating: "A", count: 65),
    ])
    func `invalid field names are refused`(name: String) {
        #expect(JournalFieldName(name) == nil)
    }

    @Test func `every field name of ours is valid`() {
        for name in JournalFieldName.all {
            #expect(JournalFieldName(name.description) == name)
        }
    }

    @Test func `priorities are those of syslog`() {
        #expect(JournalPriority.allCases.map(\.rawValue) == Array(0...7))
        #expect(JournalPriority.emergency.rawValue == 0 && JournalPriority.debug.rawValue == 7)
        #expect(JournalPriority.error < .info)
    }

    @Test func `is attached only when the stream is this very descriptor`() throws {
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        defer { ends.forEach { close($0) } }
        var status = stat()
        try #require(fstat(ends[1], &status) == 0)
        func attached(_ stream: String?) -> Bool { Journal.isAttached(ends[1], to: stream) }
        #expect(attached("\(status.st_dev):\(status.st_ino)"))
        #expect(!attached("\(status.st_dev):\(status.st_ino + 1)"))
        #expect(!attached("\(status.st_dev + 1):\(status.st_ino)"))
        #expect(!attached(nil))
        for text in ["", ":", "1", "1:2:3", "a:b", "\(status.st_dev):", "-1:-1", "99999999999999999999:1"] {
            #expect(!attached(text), "\(text)")
        }
        #expect(!Journal.isAttached(-1, to: "\(status.st_dev):\(status.st_ino)"))
    }
}
