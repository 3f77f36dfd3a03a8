import NIOCore

// Enhanced authentication (4.12): AUTH before CONNACK, and again on a connection that is up. The method is the same
// throughout [MQTT-4.12.0-5], and nothing but AUTH and DISCONNECT is sent before CONNACK (rule 20).

extension MQTTClientMachine {
    /// Handles AUTH from the server, before or after CONNACK.
    mutating func received(_ auth: Auth, isConnected: Bool, _ step: inout Step) {
        guard var exchange = link.authentication else {
            return violate(.protocolError, "the server sent AUTH, and nothing is being authenticated", &step)
        }
        guard auth.properties.authenticationMethod == SCRAMClient.method else {
            return violate(.protocolError, "the server sent AUTH with another authentication method", &step)
        }
        let data = auth.properties.authenticationData.map { Array($0.readableBytesView) } ?? []
        do throws(SCRAMClient.Failure) {
            switch auth.reasonCode {
            case .continueAuthentication:
                let challenge = try exchange.challenge(data)
                link.authentication = exchange
                step.emit(.challenged(challenge))
            case .success where isConnected:
                link.authentication = nil
                try exchange.verify(data)
                step.emit(.reauthenticated)
            default:
                violate(.protocolError, "the server sent AUTH with \(auth.reasonCode) out of turn", &step)
            }
        } catch {
            authenticationFailed(error, &step)
        }
    }

    /// Checks a CONNACK with success. Returns whether the server has proven itself, or need not.
    mutating func isProven(_ connack: Connack, _ step: inout Step) -> Bool {
        guard var exchange = link.authentication else { return true }
        link.authentication = nil
        // A server that does not support the method accepts anybody, or takes us for somebody else.
        guard connack.properties.authenticationMethod == SCRAMClient.method else {
            authenticationFailed(.notProven, &step)
            return false
        }
        do throws(SCRAMClient.Failure) {
            try exchange.verify(connack.properties.authenticationData.map { Array($0.readableBytesView) } ?? [])
            link.isAuthenticatedByMethod = true
            return true
        } catch {
            authenticationFailed(error, &step)
            return false
        }
    }

    /// Answers the challenge with the key, if the challenge still stands.
    mutating func respond(with key: SCRAMClient.Key, _ step: inout Step) {
        guard isOpen, let response = link.authentication?.respond(with: key) else { return }
        write(.continueAuthentication, response, &step)
    }

    mutating func reauthenticate(_ exchange: SCRAMClient, _ step: inout Step) {
        guard canReauthenticate else { return }
        link.authentication = exchange
        write(.reauthenticate, exchange.clientFirst, &step)
    }

    /// Whether a new credential can be sent to the server on this connection.
    public var canReauthenticate: Bool {
        guard case .connected(let session) = connection, link.isAuthenticatedByMethod else { return false }
        return link.authentication == nil && session.limits.maximumPacketSize >= Self.largestAuth
    }

    /// How many bytes an AUTH of ours may have [MQTT-3.2.2-15]: a user name, each byte of which may take three, or a
    /// nonce of the server, and some more.
    private static var largestAuth: Int { 256 + max(3 * SCRAMClient.longestUser, SCRAMClient.longestNonce) }

    private func write(_ code: ReasonCode, _ data: [UInt8], _ step: inout Step) {
        step.write(
            .auth(
                Auth(
                    reasonCode: code,
                    properties: Auth.Properties(
                        authenticationMethod: SCRAMClient.method, authenticationData: ByteBuffer(bytes: data)))))
    }

    private mutating func authenticationFailed(_ failure: SCRAMClient.Failure, _ step: inout Step) {
        link.authentication = nil
        step.emit(.authenticationFailed(failure))
        disconnect(.protocolError, &step)
    }
}
