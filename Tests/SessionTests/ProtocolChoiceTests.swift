import MQTT
import Session
import Testing
import Vocabulary

@Suite struct ProtocolChoiceTests {
    private func address(_ host: String = "a") throws -> Endpoint { try Endpoint("mqtt://\(host)") }

    @Test(arguments: ProtocolVersion.allCases)
    func `a configured version is the only one tried`(_ version: ProtocolVersion) throws {
        let address = try address()
        var choice = ProtocolChoice(version)
        #expect(choice.refused(version, at: address) == nil)
        #expect(choice.closed(version, at: address) == nil)
        choice.connected(version, at: address)
        #expect(choice.version(at: address) == version)
    }

    @Test func `version 3.1.1 is remembered for an address that refused 5 with a code`() throws {
        var choice = ProtocolChoice(nil)
        let (here, there) = (try address("a"), try address("b"))
        #expect(choice.version(at: here) == .five)
        #expect(choice.refused(.five, at: here) == .threeOneOne)
        for _ in 0..<3 { choice.connected(.threeOneOne, at: here) }
        #expect(choice.closed(.threeOneOne, at: here) == nil)
        #expect(choice.version(at: here) == .threeOneOne)
        #expect(choice.version(at: there) == .five)
    }

    @Test func `a close alternates the versions, at once only from 5 to 3.1.1`() throws {
        var choice = ProtocolChoice(nil)
        let address = try address()
        for _ in 0..<3 {
            #expect(choice.closed(.five, at: address) == .threeOneOne)
            #expect(choice.version(at: address) == .threeOneOne)
            #expect(choice.closed(.threeOneOne, at: address) == nil)
            #expect(choice.version(at: address) == .five)
        }
    }

    @Test func `version 5 gets a second chance after a close, before 3.1.1 is remembered`() throws {
        var choice = ProtocolChoice(nil)
        let address = try address()
        for isRemembered in [false, true] {
            #expect(!choice.isTentative(at: address))
            #expect(choice.closed(.five, at: address) == .threeOneOne)
            #expect(choice.isTentative(at: address) == !isRemembered, "one close may have had another reason")
            choice.connected(.threeOneOne, at: address)
            #expect(choice.version(at: address) == (isRemembered ? .threeOneOne : .five))
        }
        #expect(choice.closed(.threeOneOne, at: address) == nil)
        #expect(choice.version(at: address) == .threeOneOne)
    }

    @Test func `version 5 is remembered once it worked, whatever closes afterwards`() throws {
        var choice = ProtocolChoice(nil)
        let address = try address()
        _ = choice.closed(.five, at: address)
        choice.connected(.threeOneOne, at: address)
        choice.connected(.five, at: address)
        #expect(choice.closed(.five, at: address) == nil)
        #expect(choice.version(at: address) == .five)
    }

    @Test func `a version that worked and is refused now is no longer known, so that a close alternates again`() throws
    {
        var choice = ProtocolChoice(nil)
        let address = try address()
        choice.connected(.five, at: address)
        #expect(choice.refused(.five, at: address) == .threeOneOne)
        #expect(choice.closed(.threeOneOne, at: address) == nil)
        #expect(choice.version(at: address) == .five)
    }

    @Test func `a refused version gives way to the other, until both are refused`()
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
