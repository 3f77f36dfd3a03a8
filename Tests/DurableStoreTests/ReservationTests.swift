import MQTT
import NIOCore
import SessionCore
import Testing

@testable import DurableStore

/// The host loses power, and the disk has only what was flushed before.
@Suite struct `What is reserved ahead` {
    let directory: TemporaryDirectory
    let main: SessionName

    init() throws {
        directory = try TemporaryDirectory()
        main = try session()
    }

    private func sent(_ number: Int64, _ packetID: UInt16, _ qos: QoS) throws -> DurableChange {
        var stored = message(number)
        stored.message.qos = qos
        stored.state = .inFlight(try id(packetID))
        return .insert(stored)
    }

    @Test func `sequences and identifiers of lost moments are not used again`() async throws {
        let store = try openStore(directory)
        try await store.commit(main, try sent(1, 1, .exactlyOnce))
        // The state as it was after the last flush, which the first message of a block brings.
        let flushed = try directory.copyAsItIs()
        for number: Int64 in 2...100 {
            try await store.commit(main, try sent(number, UInt16(number), .exactlyOnce))
        }
        let rolledBack = try await openStore(flushed).mqtt(main)
        #expect(rolledBack.nextSequence.rawValue > 100)
        #expect(rolledBack.inFlight.count == 1)
        for number: UInt16 in 2...100 { #expect(rolledBack.suspectIDs.contains(try id(number))) }
        #expect(!rolledBack.suspectIDs.contains(try id(1)), "it is known to be in flight")
    }

    @Test func `the next block is reserved before it is used`() async throws {
        let store = try openStore(directory)
        for number in 1...Int64(IdentifierWindow.size + 1) {
            try await store.commit(
                main, try sent(number, UInt16(number), .exactlyOnce), .remove(.init(rawValue: number)))
        }
        let session = try await openStore(try directory.copyAsItIs()).mqtt(main)
        let first = IdentifierWindow.size + 1
        #expect(session.suspectIDs.map { Int($0.rawValue) }.min() == first)
        #expect(session.suspectIDs.count == IdentifierWindow.size)
    }

    @Test func `no identifier is suspect without QoS 2`() async throws {
        let store = try openStore(directory)
        try await store.commit(main, try sent(1, 1, .atLeastOnce))
        #expect(try await openStore(try directory.copyAsItIs()).mqtt(main).suspectIDs.isEmpty)
    }

    @Test func `no sequence is skipped after the store was closed`() async throws {
        let store = try openStore(directory)
        try await store.commit(main, try sent(1, 1, .exactlyOnce))
        try await store.close()
        let session = try await openStore(directory).mqtt(main)
        #expect(session.nextSequence.rawValue == 2)
        #expect(session.suspectIDs.isEmpty)
    }

    @Test func `a window wraps around the end of the identifiers`() throws {
        var window = IdentifierWindow()
        #expect(!window.contains(try id(1)))
        #expect(window.reserve(try id(65_500)))
        #expect(!window.reserve(try id(65_535)))
        #expect(!window.reserve(try id(1)))
        #expect(window.identifiers.count == IdentifierWindow.size)
        #expect(window.identifiers.allSatisfy { window.contains($0) })
        #expect(Set(window.identifiers).count == IdentifierWindow.size)
        #expect(window.reserve(try id(65_499)))
    }
}
