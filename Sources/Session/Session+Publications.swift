package import ControlAPI
import MQTT
import NIOCore
import SessionCore

// What programs ask about the session's publications.

extension Session {
    /// The publications in the order in which programs put them, then the topics that are still to be cleared.
    package var listedPublications: [ListedPublication] {
        let wanted = publications.entries.map { entry in
            var listed = ListedPublication(
                topic: entry.publication.topic, qos: entry.publication.qos, state: publicationState(of: entry),
                since: entry.publication.since)
            listed.payload = MessagePayload(bytes: Array(entry.publication.payload.readableBytesView))
            listed.properties = MessageProperties(entry.publication.properties)
            listed.serverTopic = entry.topic
            if case .refused(let answer, _) = entry.state, listed.state == .refused {
                listed.reasonCode = answer.code.map { Int($0.rawValue) }
                listed.message = answer.words
            }
            return listed
        }
        let removing = publications.removing.map { topic in
            var listed = ListedPublication(topic: topic, qos: nil, state: .removing, since: nil)
            listed.serverTopic = topic
            return listed
        }
        return wanted + removing
    }

    /// What the server may hold of the session, and for how long, because it cannot have heard the goodbye of a session
    /// that is down, and what servers may hold that it has left; `nil` if nothing.
    package mutating func leftBehind() -> String? {
        noteRemains()
        let elsewhere: String? =
            switch servers.homes.leftTopics {
            case 0: nil
            case 1: "a server that it has left may keep 1 retained message of the session"
            case let count: "servers that it has left may keep \(count) retained messages of the session"
            }
        let all = [machine.leftBehind(at: now), elsewhere].compactMap(\.self)
        return all.isEmpty ? nil : all.joined(separator: "; ")
    }

    /// Tells the session machine what the server may hold of the session. Rooms, publications and the server's keep-alive
    /// decide that, and the machine needs it whenever a connection ends.
    mutating func noteRemains() {
        let isKept = rooms.membership?.isKept == true
        machine.remains.isPresenceKept = isKept
        machine.remains.visibility =
            if isKept {
                nil
            } else if rooms.isElsewhere {
                .untilCleared
            } else {
                rooms.membership?.presence.visibility(keepAlive: mqtt.keepAlive)
            }
        machine.remains.publications = publications.keptCount
    }

    package func publicationState(of entry: Publications.Entry) -> PublicationState {
        // The last message on the topic and its deletion may both have been lost.
        if state == .disconnected, machine.reason.code.isDisconnectAskedFor, publications.mayBeHeld(entry) {
            return .kept
        }
        return switch entry.state {
        case .pending, .sending: .pending
        case .published: .published
        case .refused: .refused
        }
    }

    /// Checks a publication that a program puts.
    package func publication(_ parameters: PublicationPutMethod.Parameters) throws(RPCError) -> Publication {
        let topic = parameters.topic
        // A topic that is relative to a room may be put before the session is in a room.
        let resolved = Room.isRelative(topic) && room == nil ? nil : try resolve(topic)
        let publication = Publication(
            topic: topic, payload: ByteBuffer(bytes: parameters.payload.bytes), qos: parameters.qos,
            properties: Publish.Properties(try resolve(parameters.properties)), since: wallClock)
        do throws(MQTTClientMachine.PublishError) {
            try mqtt.checkContent(
                of: OutboundMessage(
                    topic: resolved ?? topic, payload: publication.payload, qos: publication.qos, retain: true,
                    properties: publication.properties))
        } catch {
            throw RPCError(error, session: settings.name, topic: topic)
        }
        try checkTopic(topic, resolved)
        guard publications.hasRoom(for: publication) else {
            throw RPCError(
                .publicationsFull,
                "session \(settings.name) may have \(Publications.maximumCount) publications of \(Publications.maximumBytes >> 20) "
                    + "MiB altogether, and this would be more",
                hint: "holdfastctl publications remove \(settings.name) TOPIC makes room")
        }
        return publication
    }

    /// - Parameter resolved: `nil` while the topic is relative to a room, and the session is in none.
    private func checkTopic(_ topic: String, _ resolved: String?) throws(RPCError) {
        // Two strings are equal if they look the same, but topics are compared as bytes (4.7.3).
        if publications.hasLookalike(of: topic, resolved: resolved) {
            throw .invalidTopic(
                topic, "it looks like a topic that the session already publishes, but its bytes differ")
        }
        guard let resolved else { return }
        if room?.participant(ofPresence: resolved) != nil {
            throw .invalidTopic(topic, "presence topics belong to the sessions in the room")
        }
        if let twin = publications.twin(of: topic, resolved: resolved) {
            throw .invalidTopic(topic, "it is the same as \(twin), which the session already publishes")
        }
    }

    /// Notes a publication that is on its way to the disk; `stored` follows.
    package mutating func arrive(_ publication: Publication) { publications.arrive(publication) }
}
