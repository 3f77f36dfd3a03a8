import ArgumentParser
import ControlAPI
import Testing

@testable import holdfastctl

struct PublicationTextTests {
    private static func listed(
        _ topic: String, _ state: PublicationState, payload: String? = "on", message: String? = nil
    ) -> ListedPublication {
        var listed = ListedPublication(
            topic: topic, qos: payload == nil ? nil : .atLeastOnce, state: state,
            since: payload == nil ? nil : Timestamp(rawValue: 1_795_165_964_120))
        listed.payload = payload.map { MessagePayload(text: $0) }
        listed.message = message
        return listed
    }

    @Test func `publications are a table with the server's answers`() {
        let result = PublicationListMethod.Result(publications: [
            Self.listed("~/lamp", .published),
            Self.listed("secret\u{1B}", .refused, message: "not authorized"),
            Self.listed("old", .removing, payload: nil),
        ])
        let times = TimeText(now: Timestamp(rawValue: 1_795_165_976_120), isAbsolute: false)
        let lines = PublicationText.lines(for: result, of: "main", times: times)
        #expect(lines.first == "main: 3 publications:")
        #expect(lines.count == 6)
        #expect(lines[3].hasPrefix("~/lamp"))
        #expect(lines[3].contains(" 2 B "), "a size is written as in queue")
        #expect(lines[4].contains("refused (not authorized)"))
        #expect(!lines[4].contains("\u{1B}"))
        #expect(lines[5].contains("removing"))
        #expect(
            PublicationText.lines(for: .init(publications: []), of: "main", times: times) == ["main: 0 publications."])
    }

    @Test func `the participants that a session knew before its connection was lost are not said to be there`() {
        let times = TimeText(now: Timestamp(rawValue: 1_795_165_976_120), isAbsolute: false)
        let result = RoomParticipantsMethod.Result(room: "plant", participants: [])
        for (state, overview) in [
            (SessionState.connected, "0 participants in plant."),
            (.reconnecting, "main is reconnecting; before, it knew of 0 participants in plant."),
        ] {
            #expect(RoomText.lines(for: result, of: "main", state: state, times: times) == [overview])
        }
    }

    @Test(arguments: [
        (["publications", "main"], true), (["publications", "list", "main", "-v"], true),
        (["publications", "put", "main", "~/a", "on", "--qos", "0", "--json"], true),
        (["publications", "put", "main", "~/a", "--file", "-"], true),
        (["publications", "put", "main", "~/a"], false),
        (["publications", "put", "main", "~/a", "on", "--file", "x"], false),
        (["publications", "put", "main", "~/a", "on", "--qos", "2"], false),
        (["publications", "remove", "main", "~/a"], true), (["publications", "remove", "main"], false),
    ])
    func `the command line is checked`(arguments: [String], isValid: Bool) {
        #expect(((try? HoldfastControl.parseAsRoot(arguments)) != nil) == isValid)
    }
}
