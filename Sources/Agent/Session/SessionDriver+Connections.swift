import Configuration
import MQTT
import NIOCore
import Session
import SessionCore
import Transport
import Vocabulary

// Dialing, whatever for, and the one place where the events of connections are looked at.

extension SessionDriver {
    /// Begins to connect. Events come after this has returned.
    func dial(_ endpoint: Endpoint, _ options: Connection.Options, as role: DialRole) -> DialID {
        let id = connections.nextID()
        let options = surroundings.bound(options, by: configuration.network, of: name)
        connections.add(surroundings.dial(endpoint, options, tlsContexts, events(of: id)), id, as: role)
        return id
    }

    func events(of id: DialID) -> (ConnectionEvent) -> Void {
        { [weak self] event in self?.assumeIsolated { $0.take(event, of: id) } }
    }

    func take(_ event: ConnectionEvent, of id: DialID) {
        guard let role = connections.role(of: id) else { return }
        switch (event, role) {
        case (.resolved(let addresses), .attempt(let attempt)), (.resolved(let addresses), .look(let attempt?)):
            watchPaths(of: attempt.endpoint, to: addresses)
        case (.reached, .knock(let endpoint)):
            knockAnswered(endpoint, id)
        case (.dialing, _):
            if let attempt = role.attempt { progressed(attempt.generation, .dialing) }
        case (.tlsFilesRejected, .knock):
            break
        case (.tlsFilesRejected(let failure), _):
            log.tlsFilesRejected(failure)
        case (.securing, _):
            if let attempt = role.attempt { progressed(attempt.generation, .securing) }

        case (.opened(let opened), .attempt):
            linkOpened(opened)
        case (.opened(let opened), .successor(let attempt)):
            successor?.opened = opened
            take(.prepared(attempt.generation))
        case (.opened, .look):
            lookOpened()

        case (.received(let bytes), .attempt(let attempt)):
            if !simulation.isSilent(attempt.generation) { run(.onLink(attempt.generation, .received(bytes))) }
        case (.received, .successor(let attempt)):
            successorFailed(attempt.generation, "the server spoke before it was spoken to")
        case (.received(let bytes), .look):
            lookReceived(bytes)

        case (.closed(let end), .attempt(let attempt)):
            linkClosed(end, attempt.generation)
        case (.closed(let end), .successor(let attempt)):
            connections.letGo(of: id)
            successor?.connection = nil
            successorFailed(attempt.generation, Reason(end).message)
        case (.closed(let end), .look):
            lookClosed(end)
        case (.closed(let end), .knock(let endpoint)):
            connections.letGo(of: id)
            knockClosed(endpoint, id, end)

        case (.resolving, _), (.writabilityChanged, _), (.resolved, _), (.reached, _), (.opened, .knock),
            (.received, .knock):
            break
        }
    }
}
