import Vocabulary

/// The content of a message. In JSON it is `payload` when it is text, and `payloadBase64` (RFC 4648, section 4) when it
/// is not, or when it is a text of more than 64 KiB that would be longer than its base64.
public struct MessagePayload: Hashable, Sendable {
    public var bytes: [UInt8]

    /// In bytes: 16 MiB.
    public static let maximumLength = 16 << 20

    public init(bytes: [UInt8]) {
        self.bytes = bytes
    }

    public init(text: String) {
        self.bytes = Array(text.utf8)
    }

    /// The payload as text; `nil` when it is not UTF-8.
    public var text: String? { String(validating: bytes, as: UTF8.self) }

    /// A text of more bytes is written as base64 when that is shorter than the escaped text, so that the length of the
    /// payload bounds the length of its line.
    static let longText = 64 << 10

    /// The text to write; `nil` if the payload is written as base64.
    private var writtenText: String? {
        guard let text else { return nil }
        guard bytes.count > Self.longText else { return text }
        let escaped = text.unicodeScalars.reduce(0) { $0 + OutgoingLine.escapedLength($1) }
        return escaped <= Self.lengthInBase64(bytes.count) ? text : nil
    }

    /// The most bytes that the text of so long a payload may take on its line.
    static func lengthInBase64(_ count: Int) -> Int { count / 3 * 4 }

    init<Key: CodingKey>(
        from container: KeyedDecodingContainer<Key>, text textKey: Key, base64 base64Key: Key
    ) throws {
        let text = try container.decodeIfPresent(String.self, forKey: textKey)
        let base64 = try container.decodeIfPresent(String.self, forKey: base64Key)
        switch (text, base64) {
        case (let text?, nil):
            self.init(text: text)
        case (nil, let base64?):
            guard let bytes = Base64.decode(base64) else {
                throw container.refusal(of: base64Key, "must be base64 text")
            }
            self.init(bytes: bytes)
        case (nil, nil):
            throw DecodingError.keyNotFound(
                textKey, .init(codingPath: container.codingPath, debugDescription: "is missing"))
        case (_?, _?):
            throw container.refusal(of: base64Key, "cannot be given together with payload")
        }
        guard bytes.count <= Self.maximumLength else {
            throw container.refusal(
                of: text == nil ? base64Key : textKey,
                "has \(bytes.count) bytes, but the maximum is \(Self.maximumLength)")
        }
    }

    func encode<Key: CodingKey>(
        to container: inout KeyedEncodingContainer<Key>, text textKey: Key, base64 base64Key: Key
    ) throws {
        if let text = writtenText {
            try container.encode(text, forKey: textKey)
        } else {
            try container.encode(Base64.encode(bytes), forKey: base64Key)
        }
    }
}

extension UserProperty: ClosedObject {}

/// The properties of a message (MQTT 5, section 3.3.2.3).
public struct MessageProperties: ClosedObject {
    /// The MIME type of the payload.
    public var contentType: String?
    /// The topic on which an answer is expected.
    public var responseTopic: String?
    /// The data that the answer repeats, as base64.
    public var correlationDataBase64: String?
    /// Names and values, in order; names may repeat.
    public var user: [UserProperty]?

    /// `SharedMessageLine` writes each of them by hand.
    enum CodingKeys: String, CodingKey, CaseIterable {
        case contentType, responseTopic, correlationDataBase64, user
    }

    /// - Parameter correlationData: the bytes themselves, not their base64.
    public init(
        contentType: String? = nil, responseTopic: String? = nil, correlationData: [UInt8]? = nil,
        user: [UserProperty]? = nil
    ) {
        self.contentType = contentType
        self.responseTopic = responseTopic
        self.correlationDataBase64 = correlationData.map { Base64.encode($0) }
        self.user = user
    }

    /// The bytes that ``correlationDataBase64`` stands for; `nil` when it is absent or is not base64.
    public var correlationData: [UInt8]? {
        correlationDataBase64.flatMap { Base64.decode($0) }
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        self.contentType = try container.decodeIfPresent(String.self, forKey: .contentType)
        self.responseTopic = try container.decodeIfPresent(String.self, forKey: .responseTopic)
        self.correlationDataBase64 = try container.decodeIfPresent(String.self, forKey: .correlationDataBase64)
        self.user = try container.decodeIfPresent([UserProperty].self, forKey: .user)
        if correlationDataBase64 != nil, correlationData == nil {
            throw container.refusal(of: .correlationDataBase64, "must be base64 text")
        }
    }
}
