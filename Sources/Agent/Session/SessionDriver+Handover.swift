import Logging
import MQTT
import NIOCore
import Session
import SessionCore
import Transport

// Make before break: the connection that is set up beside the one in use, and takes over from it. When, the session
// machine says; see SessionMachine+Handover.swift.

extension SessionDriver {
    /// Sets up everything before CONNECT, to the address that is in use: the session is there.
    func prepareSuccessor(_ attempt: Attempt) {
        connections.letGo(of: successor?.connection, .abort)
        guard let link else { return }
        successor = Link(attempt: attempt, address: link.address)
        prepare(.successor(attempt))
    }

    func successorFailed(_ generation: Generation, _ sentence: String) {
        surroundings.logger.debug(
            "\(name): no second connection over the new path: \(sentence)", metadata: ["HOLDFAST_SESSION": "\(name)"])
        take(.preparationFailed(generation))
    }

    // MARK: Taking over

    /// Tells the server, behind everything that it was sent on this connection, that no more comes here. The session is
    /// back in a moment, and the will must not be dropped: nobody may be there to say it later.
    func leave(_ generation: Generation) {
        guard let link, link.generation == generation else { return }
        // MQTT 3.1.1 knows one way to leave, and a connection that is closed without it publishes the will at once.
        let keepsWill = session.mqtt.version == .five && session.rooms.membership != nil
        handle(.disconnect(keepsWill ? .disconnectWithWill : .normalDisconnection))
        connections.letGo(of: link.connection, .afterFlush)
        self.link = nil
        handle(.connectionClosed)
    }

    /// The attempt goes on with what was set up beside the connection before.
    ///
    /// - Returns: `false` if there is nothing to go on with.
    func goOnWithSuccessor(_ attempt: Attempt) -> Bool {
        guard let successor, successor.generation == attempt.generation, let connection = successor.connection
        else {
            return false
        }
        self.successor = nil
        link = successor
        connections.change(connection, to: .attempt(attempt))
        prepareRoom()
        if let credential = successor.fetched { noteCredential(credential) }
        if let opened = successor.opened { linkOpened(opened) }
        return true
    }

    /// Asked after every step, so that whatever ends a hand-over need not say so.
    func dropUnwantedSuccessor() {
        guard let successor, successor.generation != session.machine.successor else { return }
        self.successor = nil
        connections.letGo(of: successor.connection, .abort)
    }

    /// The same for the connection in use: what was held back goes on, if it stays.
    func endSettling() {
        if session.mqtt.isSettling, !session.machine.isSettling { run(.goOn) }
    }
}
