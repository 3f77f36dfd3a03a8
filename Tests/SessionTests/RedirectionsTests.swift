import Session
import SessionCore
import Testing
import Vocabulary

struct RedirectionsTests {
    private static func redirections(
        _ endpoints: [String] = ["mqtts://a.example"], allowed: [String] = ["*.example", "192.0.2.7"],
        hasPassword: Bool = false, isInsecure: Bool = false
    ) throws -> Redirections {
        Redirections(
            try endpoints.map { try Endpoint($0) }, allowed: allowed.compactMap { HostPattern($0) },
            hasPassword: hasPassword, isInsecure: isInsecure)
    }

    /// Follows a redirection that came from the endpoint itself.
    private static func follow(
        _ redirections: inout Redirections, _ reference: String, remember: Bool = false, isStable: Bool = false
    ) -> Redirections.Outcome {
        let present = redirections.begin(EndpointIndex(0))
        return redirections.follow(
            reference, from: present, of: EndpointIndex(0), isRemembered: remember, isStable: isStable)
    }

    @Test func `an attempt knows whether it follows a redirection that came just before it`() throws {
        var redirections = try Self.redirections()
        #expect(!redirections.hasFollowed)
        _ = Self.follow(&redirections, "b.example")
        #expect(!redirections.hasFollowed)
        _ = redirections.begin(EndpointIndex(0))
        #expect(redirections.hasFollowed)
        redirections.ended()
        _ = redirections.begin(EndpointIndex(0))
        #expect(!redirections.hasFollowed)
    }

    @Test(
        arguments: [
            ("b.example", "mqtts://b.example:8883"), ("b.example:9000", "mqtts://b.example:9000"),
            ("B.Example.:1", "mqtts://b.example.:1"), ("192.0.2.7", "mqtts://192.0.2.7:8883"),
            ("other.test c.example:1 d.example", "mqtts://c.example:1"), ("a.example:1", "mqtts://a.example:1"),
            ("mqtt://x/ b.example", "mqtts://b.example:8883"), ("  b.example", "mqtts://b.example:8883"),
        ])
    func `an allowed reference is followed with the endpoint's scheme`(reference: String, target: String) throws {
        var redirections = try Self.redirections()
        #expect(Self.follow(&redirections, reference) == .followed(try Endpoint(target)))
        #expect(redirections.begin(EndpointIndex(0)) == (try Endpoint(target)))
    }

    @Test func `an IPv6 address must be in brackets`() throws {
        var redirections = try Self.redirections(allowed: ["2001:db8::1"])
        #expect(Self.follow(&redirections, "[2001:DB8::1]:99") == .followed(try Endpoint("mqtts://[2001:db8::1]:99")))
        #expect(Self.follow(&redirections, "2001:db8::1") == .unusable)
    }

    @Test(arguments: ["", "   "])
    func `a reference without an address is not followed`(reference: String) throws {
        var redirections = try Self.redirections()
        #expect(Self.follow(&redirections, reference) == .empty)
    }

    @Test(arguments: ["b.example/path", "user@b.example", "b.example:0", "b example:x", "ü.example"])
    func `a reference that cannot be dialed is not followed`(reference: String) throws {
        var redirections = try Self.redirections(allowed: ["*.example"])
        #expect([.unusable, .refused("")].contains(Self.verdict(Self.follow(&redirections, reference))))
    }

    private static func verdict(_ verdict: Redirections.Outcome) -> Redirections.Outcome {
        if case .refused = verdict { .refused("") } else { verdict }
    }

    @Test(arguments: ["example", "bexample", "b.example.test", "192.0.2.8", "other.test"])
    func `a host that is not allowed is refused with a sentence that names it`(reference: String) throws {
        var redirections = try Self.redirections()
        #expect(
            Self.follow(&redirections, reference)
                == .refused(
                    "the server sends the session to \(reference):8883, which redirects of [mqtt] does not allow"))
        #expect(redirections.begin(EndpointIndex(0)) == (try Endpoint("mqtts://a.example")))
    }

    @Test func `only the configured servers are allowed by default`() throws {
        var redirections = try Self.redirections(["mqtts://a.example", "mqtts://b.test"], allowed: [])
        #expect(Self.follow(&redirections, "b.test:7") == .followed(try Endpoint("mqtts://b.test:7")))
        #expect(Self.verdict(Self.follow(&redirections, "c.test")) == .refused(""))
    }

    @Test func `a password is not sent unencrypted to another host`() throws {
        var redirections = try Self.redirections(["mqtt://127.0.0.1"], hasPassword: true)
        #expect(
            Self.follow(&redirections, "b.example")
                == .refused(
                    "the server sends the session to mqtt://b.example:1883, where the password would go unencrypted"))
        redirections = try Self.redirections(["mqtt://127.0.0.1"])
        #expect(Self.follow(&redirections, "b.example") == .followed(try Endpoint("mqtt://b.example")))
    }

    @Test(arguments: [false, true])
    func `a password that a program gives later is not sent unencrypted to another host`(isInsecure: Bool) throws {
        var redirections = try Self.redirections(["mqtt://127.0.0.1"], isInsecure: isInsecure)
        _ = Self.follow(&redirections, "b.example", remember: true)
        redirections.passwordGiven()
        let (own, other) = (try Endpoint("mqtt://127.0.0.1"), try Endpoint("mqtt://b.example"))
        #expect(redirections.next(EndpointIndex(0)) == (isInsecure ? other : own))
        #expect(redirections.begin(EndpointIndex(0)) == (isInsecure ? other : own))
        let outcome = Self.verdict(Self.follow(&redirections, "c.example"))
        #expect(outcome == (isInsecure ? .followed(try Endpoint("mqtt://c.example")) : .refused("")))
    }

    @Test func `three hops are followed, a fourth is not`() throws {
        var redirections = try Self.redirections()
        for host in ["b", "c", "d"] {
            let target = try Endpoint("mqtts://\(host).example")
            #expect(Self.follow(&redirections, "\(host).example") == .followed(target))
        }
        #expect(Self.follow(&redirections, "e.example") == .tooMany)
        // The next attempt is an ordinary one, so it may be redirected again.
        #expect(redirections.begin(EndpointIndex(0)) == (try Endpoint("mqtts://a.example")))
        #expect(Self.follow(&redirections, "b.example") != .tooMany)
    }

    @Test func `a connection that lasted ends the chain`() throws {
        var redirections = try Self.redirections()
        #expect(redirections.begin(EndpointIndex(0)).host == "a.example")
        #expect(!redirections.hasFollowed, "nothing was redirected yet")
        let target = try Endpoint("mqtts://b.example")
        for _ in 0..<9 { #expect(Self.follow(&redirections, "b.example", isStable: true) == .followed(target)) }
    }

    @Test(arguments: [true, false])
    func `0x9D is remembered, 0x9C holds for one connection`(isRemembered: Bool) throws {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, "b.example", remember: isRemembered)
        redirections.ended()
        let (own, other) = (try Endpoint("mqtts://a.example"), try Endpoint("mqtts://b.example"))
        #expect(redirections.begin(EndpointIndex(0)) == other)
        redirections.connected()
        redirections.ended()
        #expect(redirections.begin(EndpointIndex(0)) == (isRemembered ? other : own))
    }

    @Test func `0x9D is forgotten when the endpoint itself accepts the session again`() throws {
        var redirections = try Self.redirections(["mqtts://a.example", "mqtts://z.example"])
        _ = Self.follow(&redirections, "b.example", remember: true)
        #expect(Self.hosts(&redirections, 1) == ["b.example"])
        _ = redirections.begin(EndpointIndex(1))
        redirections.connected()
        redirections.ended()
        #expect(redirections.begin(EndpointIndex(0)).host == "a.example")
        redirections.connected()
        redirections.ended()
        #expect(Self.hosts(&redirections, 2) == ["a.example", "a.example"])
    }

    @Test func `a server that is gone leaves other addresses to try, unless the redirect to it is new`() throws {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, "b.example c.example", remember: true)
        var areLeft: [Bool] = []
        for _ in 0..<6 {
            _ = redirections.begin(EndpointIndex(0))
            areLeft.append(redirections.ended())
        }
        #expect(areLeft == [false, false, false, true, true, false])
    }

    @Test func `a knock that is not answered makes way for the next address`() throws {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, "b.example c.example", remember: true)
        var hosts: [String] = []
        for _ in 0..<4 {
            hosts.append(redirections.next(EndpointIndex(0)).host)
            redirections.notAnswered(EndpointIndex(0))
        }
        #expect(hosts == ["b.example", "c.example", "a.example", "b.example"])
    }

    @Test func `an unreachable new server alternates with the endpoint itself`() throws {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, "b.example", remember: true)
        var hosts: [String] = []
        var follows: [Bool] = []
        for _ in 0..<4 {
            hosts.append(redirections.begin(EndpointIndex(0)).host)
            follows.append(redirections.hasFollowed)
            redirections.ended()
        }
        #expect(hosts == ["b.example", "a.example", "b.example", "a.example"])
        #expect(follows == [true, false, false, false], "only the first attempt follows a redirect at once")
    }

    /// The hosts of the next attempts, all of which fail.
    private static func hosts(_ redirections: inout Redirections, _ count: Int) -> [String] {
        (0..<count).map { _ in
            let host = redirections.begin(EndpointIndex(0)).host
            redirections.ended()
            return host
        }
    }

    @Test(arguments: [true, false])
    func `the addresses of a list are tried in their order, and then the endpoint itself`(isRemembered: Bool) throws {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, "b.example other.test c.example", remember: isRemembered)
        let (own, again) = ("a.example", isRemembered ? ["b.example", "c.example"] : ["a.example", "a.example"])
        #expect(Self.hosts(&redirections, 5) == ["b.example", "c.example", own] + again)
        #expect(!redirections.hasFollowed)
    }

    @Test func `every address of a list that is tried follows the redirect`() throws {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, "b.example c.example")
        _ = Self.hosts(&redirections, 1)
        _ = redirections.begin(EndpointIndex(0))
        #expect(redirections.hasFollowed)
        #expect(redirections.followedTo == (try Endpoint("mqtts://c.example")))
    }

    @Test func `the address of a list that was connected stays in use`() throws {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, "b.example c.example", remember: true)
        _ = Self.hosts(&redirections, 1)
        _ = redirections.begin(EndpointIndex(0))
        redirections.connected()
        redirections.ended()
        #expect(Self.hosts(&redirections, 3) == ["c.example", "a.example", "b.example"])
    }

    @Test func `no more than four addresses of a list are tried`() throws {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, (1...9).map { "n\($0).example" }.joined(separator: " "))
        #expect(Self.hosts(&redirections, 5) == (1...4).map { "n\($0).example" } + ["a.example"])
    }

    @Test func `servers that redirect to lists are counted like others`() throws {
        var redirections = try Self.redirections()
        for _ in 0..<3 {
            #expect(
                Self.follow(&redirections, "b.example c.example") == .followed(try Endpoint("mqtts://b.example")))
            _ = Self.hosts(&redirections, 1)
        }
        #expect(Self.follow(&redirections, "b.example c.example") == .tooMany)
    }

    @Test func `what is left of a list for one connection is forgotten when another endpoint is connected`() throws {
        var redirections = try Self.redirections(["mqtts://a.example", "mqtts://z.example"])
        _ = Self.follow(&redirections, "b.example c.example")
        _ = Self.hosts(&redirections, 1)
        _ = redirections.begin(EndpointIndex(1))
        #expect(!redirections.hasFollowed)
        redirections.connected()
        #expect(redirections.next(EndpointIndex(0)).host == "a.example")
    }

    @Test(arguments: [true, false])
    func `an attempt that never reached the new server does not count against it`(isRemembered: Bool) throws {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, "b.example", remember: isRemembered)
        redirections.ended()
        for _ in 0..<3 {
            #expect(redirections.begin(EndpointIndex(0)).host == "b.example")
            redirections.ended(wasTried: false)
        }
        #expect(Self.verdict(Self.follow(&redirections, "c.example")) != .tooMany)
        #expect(Self.verdict(Self.follow(&redirections, "d.example")) != .tooMany)
        #expect(Self.follow(&redirections, "e.example") == .tooMany, "it belongs to the same chain")
    }

    @Test(arguments: [("A.example.", "a.example"), ("*.Example.com", "*.example.com"), ("192.0.2.1", "192.0.2.1")])
    func `a pattern is shown in lower case and without the root`(text: String, told: String) {
        #expect(HostPattern(text)?.text == told)
    }

    @Test(arguments: ["*", "*.", "*.192.0.2.1", "a b", "-a", "", "https://a.example", "a.*"])
    func `malformed text is not a pattern`(text: String) {
        #expect(HostPattern(text) == nil)
    }

    @Test func `a new server that was connected before and has become unreachable alternates with the endpoint itself`()
        throws
    {
        var redirections = try Self.redirections()
        _ = Self.follow(&redirections, "b.example", remember: true)
        #expect(redirections.begin(EndpointIndex(0)).host == "b.example")
        redirections.connected()
        redirections.ended()
        #expect(redirections.begin(EndpointIndex(0)).host == "b.example")
        redirections.ended()
        #expect(redirections.begin(EndpointIndex(0)).host == "a.example")
    }
}
