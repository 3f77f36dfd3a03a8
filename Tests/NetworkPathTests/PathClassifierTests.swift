import SessionCore
import Testing
import Vocabulary

@testable import NetworkPath

@Suite struct PathClassifierTests {
    private static func path(
        _ interface: Int32 = 2, source: String = "10.9.0.1", gateway: String? = "10.9.0.254", name: String = "up0",
        table: UInt32 = 254
    ) -> Path {
        Path(
            interface: name, interfaceIndex: interface, type: .ethernet, source: source, gateway: gateway, table: table)
    }

    private static let first = path()
    private static let second = path(3, source: "10.9.1.1", gateway: "10.9.1.254", name: "up1")
    /// The same path, but whether it leads to the server is not known.
    private static let nearby: Path = {
        var nearby = path(gateway: nil)
        nearby.isToNeighbours = true
        return nearby
    }()
    private static let sixth = path(2, source: "2001:db8:9::1", gateway: "fe80::1")

    struct Case: Sendable, CustomTestStringConvertible {
        var name: String
        var from: Path?
        var to: Path?
        var sourceRemains = false
        var isUnresolved = false
        var families: Set<IPAddress.Family> = [.ipv4]
        var expected: PathClass
        var testDescription: String { name }
    }

    @Test(arguments: [
        Case(name: "still nothing", from: nil, to: nil, expected: .none),
        Case(name: "nothing new", from: first, to: first, expected: .none),
        Case(name: "another name", from: first, to: path(name: "wan"), expected: .none),
        Case(name: "another table", from: first, to: path(table: 100), expected: .none),
        Case(name: "a path at last", from: nil, to: first, expected: .gained),
        Case(name: "no path any more", from: first, to: nil, expected: .lost),
        Case(name: "another interface, source gone", from: first, to: second, expected: .movedSourceGone),
        Case(
            name: "another interface, source kept", from: first, to: second, sourceRemains: true,
            expected: .movedSourceKept),
        Case(name: "a new address", from: first, to: path(source: "10.9.0.7"), expected: .movedSourceGone),
        Case(
            name: "another gateway", from: first, to: path(gateway: "10.9.0.253"), sourceRemains: true,
            expected: .movedSourceKept),
        Case(
            name: "the gateway is gone: on the link now", from: first, to: path(gateway: nil), sourceRemains: true,
            expected: .movedSourceKept),
        Case(name: "the interface was created again", from: first, to: path(9), expected: .movedSourceGone),
        Case(name: "a new family", from: first, to: first, families: [.ipv4, .ipv6], expected: .maybe),
        Case(
            name: "a new family takes the lead", from: first, to: sixth, sourceRemains: true,
            families: [.ipv4, .ipv6], expected: .maybe),
        Case(
            name: "the family is gone, its address not", from: first, to: sixth, sourceRemains: true,
            families: [.ipv6], expected: .movedSourceKept),
        Case(name: "the other family is left", from: first, to: sixth, families: [.ipv6], expected: .movedSourceGone),
        Case(name: "a name unresolved: moved", from: first, to: second, isUnresolved: true, expected: .maybe),
        Case(name: "a name unresolved: lost", from: first, to: nil, isUnresolved: true, expected: .lost),
        Case(name: "a name unresolved: gained", from: nil, to: first, isUnresolved: true, expected: .gained),
        Case(name: "a name unresolved: nothing", from: first, to: first, isUnresolved: true, expected: .none),
        Case(name: "a name unresolved: farther", from: nearby, to: first, isUnresolved: true, expected: .gained),
        Case(
            name: "a name unresolved: farther, on the link", from: nearby, to: path(gateway: nil), isUnresolved: true,
            expected: .gained),
        Case(name: "a name unresolved: nearby again", from: first, to: nearby, isUnresolved: true, expected: .maybe),
        Case(
            name: "a name unresolved: nearby again, on the link", from: path(gateway: nil), to: nearby,
            isUnresolved: true,
            expected: .maybe),
    ])
    func `each difference has one class`(_ example: Case) {
        var classifier = PathClassifier(
            .init(path: example.from, families: example.from == nil ? [] : [.ipv4]), isUnresolved: example.isUnresolved)
        let found = PathClassifier.Observation(path: example.to, families: example.to == nil ? [] : example.families)
        let result = classifier.handle(
            found, oldSourceRemains: { _ in example.sourceRemains }, at: Instant(nanoseconds: 1))
        #expect(result == example.expected)
        #expect(classifier.current == found)
    }

    @Test(arguments: [
        (Int64(0), first, PathClass.returned), (5000, first, .returned), (5001, first, .gained),
        (100, second, .gained), (100, path(source: "10.9.0.7"), .gained),
    ])
    func `a lost path returns only within the hold and only as it was`(
        milliseconds: Int64, path: Path, expected: PathClass
    ) {
        let start = Instant(nanoseconds: 7_000_000_000)
        var classifier = PathClassifier(.init(path: Self.first, families: [.ipv4]), isUnresolved: false)
        #expect(classifier.handle(.init(), oldSourceRemains: { _ in true }, at: start) == .lost)
        #expect(
            classifier.handle(.init(), oldSourceRemains: { _ in true }, at: start.advanced(by: .milliseconds(1)))
                == .none)
        let later = start.advanced(by: .milliseconds(milliseconds))
        #expect(
            classifier.handle(.init(path: path, families: [.ipv4]), oldSourceRemains: { _ in true }, at: later)
                == expected)
        #expect(
            classifier.handle(.init(path: path, families: [.ipv4]), oldSourceRemains: { _ in true }, at: later) == .none
        )
    }

    @Test(arguments: [(Int64(100), PathClass.movedSourceGone), (5000, .movedSourceGone), (5001, .gained)])
    func `another path within the hold is a move if the old source is gone`(
        milliseconds: Int64, expected: PathClass
    ) {
        var classifier = PathClassifier(.init(path: Self.first, families: [.ipv4]), isUnresolved: false)
        let start = Instant(nanoseconds: 0)
        #expect(classifier.handle(.init(), oldSourceRemains: { _ in false }, at: start) == .lost)
        var asked: [Path] = []
        let result = classifier.handle(
            .init(path: Self.second, families: [.ipv4]),
            oldSourceRemains: {
                asked.append($0)
                return false
            }, at: start.advanced(by: .milliseconds(milliseconds)))
        #expect(result == expected)
        #expect(asked == (expected == .gained ? [] : [Self.first]))
    }

    @Test func `a path that is not allowed is reported while there is no other`() {
        var classifier = PathClassifier(.init(), isUnresolved: false)
        let now = Instant(nanoseconds: 0)
        var seen: [PathClass] = []
        for excluded in [Self.first, Self.first, Self.second, nil, nil] {
            seen.append(classifier.handle(.init(excluded: excluded), oldSourceRemains: { _ in true }, at: now))
        }
        #expect(seen == [.maybe, .none, .maybe, .maybe, .none])
    }

    @Test func `a path that the kernel may find by trying is reported while there is none`() {
        var classifier = PathClassifier(.init(path: Self.first, families: [.ipv4]), isUnresolved: false)
        let now = Instant(nanoseconds: 0)
        var seen: [PathClass] = []
        for hasDetour in [true, true, false, false, true] {
            seen.append(classifier.handle(.init(hasDetour: hasDetour), oldSourceRemains: { _ in true }, at: now))
        }
        #expect(seen == [.lost, .none, .maybe, .none, .maybe])
    }

    @Test func `the hold starts with each loss`() {
        var classifier = PathClassifier(.init(path: Self.first, families: [.ipv4]), isUnresolved: false)
        for second in stride(from: Int64(0), to: 40, by: 8) {
            let now = Instant(nanoseconds: second * 1_000_000_000)
            #expect(classifier.handle(.init(), oldSourceRemains: { _ in true }, at: now) == .lost)
            #expect(
                classifier.handle(
                    .init(path: Self.first, families: [.ipv4]), oldSourceRemains: { _ in true },
                    at: now.advanced(by: .seconds(4))) == .returned)
        }
    }

    @Test func `the old source is looked up only when the path moved`() {
        var classifier = PathClassifier(.init(path: Self.first, families: [.ipv4]), isUnresolved: false)
        var questions = 0
        let ask = { (_: Path) in
            questions += 1
            return true
        }
        let now = Instant(nanoseconds: 0)
        for path in [Self.first, nil, Self.first] {
            _ = classifier.handle(.init(path: path, families: [.ipv4]), oldSourceRemains: ask, at: now)
        }
        #expect(questions == 0)
        _ = classifier.handle(.init(path: Self.second, families: [.ipv4]), oldSourceRemains: ask, at: now)
        #expect(questions == 1)
    }

    // MARK: Addresses that leave later

    /// A classifier, and a host that has the source addresses of these paths.
    private struct Host {
        var classifier: PathClassifier
        var sources: Set<Path>
        var now = Instant(nanoseconds: 1)
        /// The paths that it was asked about.
        var asked: [Path] = []

        init(_ path: Path?, isUnresolved: Bool = false) {
            classifier = PathClassifier(
                .init(path: path, families: path == nil ? [] : [.ipv4]), isUnresolved: isUnresolved)
            sources = Set([path].compactMap(\.self))
        }

        /// Checks as the watcher does, and returns its reports in order: the class, and the path whose address is gone.
        mutating func look(_ path: Path?, families: Set<IPAddress.Family> = [.ipv4]) -> [String] {
            if let path { sources.insert(path) }
            let (sources, last) = (sources, classifier.lastPath)
            var asked: [Path] = []
            let remains = { (path: Path) in
                asked.append(path)
                return sources.contains(path)
            }
            let pathClass = classifier.handle(
                .init(path: path, families: path == nil ? [] : families), oldSourceRemains: remains, at: now)
            var told = pathClass == .none ? [] : [pathClass.rawValue]
            if pathClass == .movedSourceGone { told[0] += " \(last?.interface ?? "none")" }
            while let departed = classifier.departure(oldSourceRemains: remains) {
                told.append("\(PathClass.movedSourceGone.rawValue) \(departed.interface)")
            }
            self.asked = asked
            return told
        }

        mutating func pass(_ duration: Duration) { now = now.advanced(by: duration) }
    }

    private static let third = path(4, source: "10.9.2.1", gateway: "10.9.2.254", name: "up2")

    @Test func `a source address that leaves after its path is reported once`() {
        var host = Host(Self.first)
        #expect(host.look(Self.second) == ["moved-source-kept"])
        #expect(host.look(Self.second) == [])
        host.sources.remove(Self.first)
        #expect(host.look(Self.second) == ["moved-source-gone up0"])
        #expect(host.look(Self.second) == [])
        #expect(host.asked == [])
    }

    @Test func `one address is looked up per check, and none if no path was left`() {
        var host = Host(Self.first)
        #expect(host.look(Self.first) == [] && host.asked == [])
        #expect(host.look(Self.second) == ["moved-source-kept"])
        #expect(host.look(Self.second) == [] && host.asked == [Self.first])
    }

    @Test func `a path that is used again is no longer left behind`() {
        var host = Host(Self.first)
        #expect(host.look(Self.second) == ["moved-source-kept"])
        #expect(host.look(Self.first) == ["moved-source-kept"])
        #expect(host.classifier.leftBehind == [Self.second])
        host.sources.remove(Self.first)
        #expect(host.look(Self.second) == ["moved-source-gone up0"])
        #expect(host.look(Self.second) == [] && host.asked == [])
    }

    @Test func `a path by another gateway of the same address leaves nothing behind`() {
        var host = Host(Self.first)
        let other = Self.path(gateway: "10.9.0.253")
        #expect(host.look(other) == ["moved-source-kept"])
        #expect(host.classifier.leftBehind == [])
        #expect(host.look(Self.second) == ["moved-source-kept"])
        #expect(host.look(Self.first) == ["moved-source-kept"])
        #expect(host.classifier.leftBehind == [Self.second])
    }

    @Test func `several paths left behind are reported one by one`() {
        var host = Host(Self.first)
        #expect(host.look(Self.second) == ["moved-source-kept"])
        #expect(host.look(Self.third) == ["moved-source-kept"])
        #expect(host.look(Self.third) == [] && host.asked == [Self.first, Self.second])
        host.sources.remove(Self.second)
        #expect(host.look(Self.third) == ["moved-source-gone up1"])
        host.sources.remove(Self.first)
        #expect(host.look(Self.third) == ["moved-source-gone up0"])
    }

    @Test func `two addresses that leave at once are both reported, after a move in the same check`() {
        var host = Host(Self.first)
        #expect(host.look(Self.second) == ["moved-source-kept"])
        host.sources = []
        #expect(host.look(Self.third) == ["moved-source-gone up1", "moved-source-gone up0"])
        #expect(host.classifier.leftBehind == [])
    }

    @Test func `no address is looked up without a path, and those that left are reported once there is one`() {
        var host = Host(Self.first)
        #expect(host.look(Self.second) == ["moved-source-kept"])
        host.sources.remove(Self.first)
        #expect(host.look(nil) == ["lost"] && host.asked == [])
        host.pass(.seconds(1))
        #expect(host.look(Self.second) == ["returned", "moved-source-gone up0"])
    }

    @Test func `a lost path is the one left behind when another follows within the hold`() {
        var host = Host(Self.first)
        #expect(host.look(nil) == ["lost"])
        host.pass(.seconds(1))
        #expect(host.look(Self.second) == ["gained"])
        host.sources.remove(Self.first)
        #expect(host.look(Self.second) == ["moved-source-gone up0"])
    }

    @Test func `paths left behind before the hold are forgotten`() {
        var host = Host(Self.first)
        #expect(host.look(Self.second) == ["moved-source-kept"])
        #expect(host.look(nil) == ["lost"])
        host.pass(.milliseconds(5001))
        #expect(host.look(Self.third) == ["gained"])
        host.sources = []
        #expect(host.look(Self.third) == [] && host.asked == [])
    }

    @Test func `the number of paths remembered is limited, and the oldest is dropped`() {
        var host = Host(Self.first)
        let paths = (10..<20).map { Self.path($0, source: "10.9.\($0).1", name: "up\($0)") }
        for path in paths { #expect(host.look(path) == ["moved-source-kept"]) }
        #expect(host.classifier.leftBehind == Array(paths.dropLast().suffix(PathClassifier.mostLeftBehind)))
        let forgotten = Set([Self.first] + paths.prefix(5))
        host.sources.subtract(forgotten)
        #expect(host.look(paths[9]) == [])
    }

    @Test func `a new connection forgets the paths left behind`() {
        var host = Host(Self.first)
        #expect(host.look(Self.second) == ["moved-source-kept"])
        host.classifier.forgetLeftBehind()
        host.sources.remove(Self.first)
        #expect(host.look(Self.second) == [] && host.asked == [])
    }

    @Test func `an unresolved name's path is not left behind`() {
        var host = Host(Self.first, isUnresolved: true)
        #expect(host.look(Self.second) == ["maybe"])
        #expect(host.look(nil) == ["lost"])
        #expect(host.look(Self.third) == ["gained"])
        host.sources = []
        #expect(host.look(Self.third) == [] && host.asked == [])
    }

    @Test func `a maybe leaves no path behind, and does not hide that an address left`() {
        var host = Host(Self.first)
        #expect(host.look(Self.second) == ["moved-source-kept"])
        host.sources.remove(Self.first)
        #expect(host.look(Self.second, families: [.ipv4, .ipv6]) == ["maybe", "moved-source-gone up0"])
        #expect(host.look(Self.sixth, families: [.ipv4, .ipv6]) == ["maybe"])
        #expect(host.classifier.leftBehind == [])
    }
}
