import MQTT
import Session
import Testing
import Vocabulary

@Suite struct ProtocolChoiceTests {
    private func address(_ host: String = "a") throws -> Endpoint { try Endpoint("mqtt://\(host)") }

    @Test(arguments: ProtocolVersion.allCases)
    func `a version that is configured is the only one`(_ version: ProtocolVersion) throws {
        let address = try address()
        var choice = ProtocolChoice(version)
        #expect(choice.refused(version, at: address) == nil)
        #expect(choice.closed(version, at: address) == nil)
        choice.connected(version, at: address)
        #expect(choice.version(at: address) == version)
    }

    @Test func `5 is refused in words, 3.1.1 works and is remembered, at that address`() throws {
        var choice = ProtocolChoice(nil)
        let (here, there) = (try address("a"), try address("b"))
        #expect(choice.version(at: here) == .five)
        #expect(choice.refused(.five, at: here) == .threeOneOne)
        for _ in 0..<3 { choice.connected(.threeOneOne, at: here) }
        #expect(choice.closed(.threeOneOne, at: here) == nil)
        #expect(choice.version(at: here) == .threeOneOne)
        #expect(choice.version(at: there) == .five)
    }

    @Test func `a close alternates, and hurries from 5 to 3.1.1 only`() throws {
        var choice = ProtocolChoice(nil)
        let address = try address()
        for _ in 0..<3 {
            #expect(choice.closed(.five, at: address) == .threeOneOne)
            #expect(choice.version(at: address) == .threeOneOne)
            #expect(choice.closed(.threeOneOne, at: address) == nil)
            #expect(choice.version(at: address) == .five)
        }
    }

    @Test func `a close may be chance, so 5 has a second chance before 3.1.1 is remembered`() throws {
        var choice = ProtocolChoice(nil)
        let address = try address()
        for isRemembered in [false, true] {
            #expect(choice.closed(.five, at: address) == .threeOneOne)
            choice.connected(.threeOneOne, at: address)
            #expect(choice.version(at: address) == (isRemembered ? .threeOneOne : .five))
        }
        #expect(choice.closed(.threeOneOne, at: address) == nil)
        #expect(choice.version(at: address) == .threeOneOne)
    }

    @Test func `5 that works is remembered, whatever is closed afterwards`() throws {
        var choice = ProtocolChoice(nil)
        let address = try address()
        _ = choice.closed(.five, at: address)
        choice.connected(.threeOneOne, at: address)
        choice.connected(.five, at: address)
        #expect(choice.closed(.five, at: address) == nil)
        #expect(choice.version(at: address) == .five)
    }

    @Test func `a server that refuses both is not asked again, and one that refuses what it took is asked the other`()
        throws
    {
        var choice = ProtocolChoice(nil)
        let address = try address()
        #expect(choice.refused(.five, at: address) == .threeOneOne)
        choice.connected(.threeOneOne, at: address)
        #expect(choice.refused(.threeOneOne, at: address) == .five)
        #expect(choice.refused(.five, at: address) == nil)
        #expect(choice.version(at: address) == .five)
    }
}
