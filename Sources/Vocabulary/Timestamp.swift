import FoundationEssentials
import Glibc

/// A time on the wall clock, for what must survive reboots and for what people read.
///
/// Its text is that of RFC 3339: UTC, with milliseconds, for example `2026-11-20T09:12:44.120Z`. The years of the text
/// are 0000 to 9999; a time outside this range is written as the nearest one inside it.
public struct Timestamp: RawRepresentable, Hashable, Sendable, Comparable {
    /// Milliseconds since 1970-01-01T00:00:00Z, without leap seconds.
    public let rawValue: Int64

    /// - Parameter rawValue: milliseconds since 1970-01-01T00:00:00Z.
    public init(rawValue: Int64) {
        self.rawValue = rawValue
    }

    /// - Parameter seconds: since 1970-01-01T00:00:00Z, as `CLOCK_REALTIME` counts them.
    /// - Parameter nanoseconds: the part below a second, 0 to 999 999 999.
    public init(seconds: Int64, nanoseconds: Int64) {
        let whole = min(max(seconds, Self.earliest / 1000), Self.latest / 1000)
        self.rawValue = whole * 1000 + nanoseconds / 1_000_000
    }

    /// Reads `YYYY-MM-DDThh:mm:ss[.fraction](Z|±hh:mm)`; `nil` for anything else. Digits beyond milliseconds are cut
    /// off.
    public init?(_ text: String) {
        var reader = Reader(text: Array(text.utf8))
        guard let year = reader.number(4), reader.skip("-"),
            let month = reader.number(2), (1...12).contains(month), reader.skip("-"),
            let day = reader.number(2), let midnight = Self.midnight(year, month, day),
            reader.skip("T") || reader.skip("t"),
            let hour = reader.number(2), hour <= 23, reader.skip(":"),
            let minute = reader.number(2), minute <= 59, reader.skip(":"),
            let second = reader.number(2), second <= 60
        else { return nil }
        var fraction: Int64 = 0
        if reader.skip(".") {
            guard let read = reader.fraction() else { return nil }
            fraction = read
        }
        guard let offset = reader.offset(), reader.isAtEnd else { return nil }
        let seconds = midnight + hour * 3600 + minute * 60 + second - offset * 60
        self.rawValue = seconds * 1000 + fraction
    }

    /// Reads a date of HTTP in the form that has to be sent (RFC 9110, 5.6.7), for example
    /// `Sun, 06 Nov 1994 08:49:37 GMT`; `nil` for anything else.
    public init?(httpDate text: String) {
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        let parts = text.split(separator: " ", omittingEmptySubsequences: false)
        guard parts.count == 6, parts[0].hasSuffix(","), parts[5] == "GMT",
            let month = months.firstIndex(of: String(parts[2]))
        else { return nil }
        self.init("\(parts[3])-\(Self.pad(Int64(month + 1), 2))-\(parts[1])T\(parts[4])Z")
    }

    public static func < (left: Timestamp, right: Timestamp) -> Bool { left.rawValue < right.rawValue }

    /// The present time. Only for what does I/O: machines are given the time.
    public static var now: Timestamp { Timestamp(rawValue: Int64(Date.now.timeIntervalSince1970 * 1000)) }

    /// Later by this many milliseconds, or earlier if negative; saturates at the end of the range.
    package func advanced(by milliseconds: Int64) -> Timestamp {
        let (sum, overflow) = rawValue.addingReportingOverflow(milliseconds)
        return Timestamp(rawValue: overflow ? (milliseconds > 0 ? .max : .min) : sum)
    }

    /// Seconds from the other time to this one.
    public func seconds(since other: Timestamp) -> Double {
        let (difference, overflow) = rawValue.subtractingReportingOverflow(other.rawValue)
        return overflow ? 0 : Double(difference) / 1000
    }
}

extension Timestamp: CustomStringConvertible {
    /// For example `2026-11-20T09:12:44.120Z`.
    public var description: String {
        let (year, month, day, hour, minute, second, millisecond) = fields(offset: 0)
        return Self.pad(year, 4) + "-" + Self.pad(month, 2) + "-" + Self.pad(day, 2)
            + "T" + Self.pad(hour, 2) + ":" + Self.pad(minute, 2) + ":" + Self.pad(second, 2)
            + "." + Self.pad(millisecond, 3) + "Z"
    }

    /// The date on a clock that is ahead of UTC by `offset` seconds, for example `2026-11-20`.
    public func date(offset: Int64) -> String {
        let (year, month, day, _, _, _, _) = fields(offset: offset)
        return Self.pad(year, 4) + "-" + Self.pad(month, 2) + "-" + Self.pad(day, 2)
    }

    /// The time of day on a clock that is ahead of UTC by `offset` seconds, for example `09:12:44.120`.
    public func time(offset: Int64) -> String {
        let (_, _, _, hour, minute, second, millisecond) = fields(offset: offset)
        return Self.pad(hour, 2) + ":" + Self.pad(minute, 2) + ":" + Self.pad(second, 2) + "."
            + Self.pad(millisecond, 3)
    }

    private typealias Fields = (Int64, Int64, Int64, Int64, Int64, Int64, Int64)

    private func fields(offset: Int64) -> Fields {
        let inside = min(max(rawValue, Self.earliest), Self.latest)
        let local = min(max(inside + offset * 1000, Self.earliest), Self.latest)
        let millisecond = (local % 1000 + 1000) % 1000
        var seconds = time_t((local - millisecond) / 1000)
        var fields = tm()
        gmtime_r(&seconds, &fields)
        return (
            Int64(fields.tm_year) + 1900, Int64(fields.tm_mon) + 1, Int64(fields.tm_mday),
            Int64(fields.tm_hour), Int64(fields.tm_min), Int64(fields.tm_sec), millisecond
        )
    }

    private static func pad(_ value: Int64, _ width: Int) -> String {
        let digits = String(value)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
}

extension Timestamp: Codable {
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        let text = try container.decode(String.self)
        guard let time = Timestamp(text) else {
            throw DecodingError.dataCorruptedError(
                in: container, debugDescription: "must be a time like 2026-11-20T09:12:44.120Z")
        }
        self = time
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(description)
    }
}

extension Timestamp {
    private static let earliest: Int64 = -62_167_219_200_000
    private static let latest: Int64 = 253_402_300_799_999

    /// Returns the beginning of a day in seconds since 1970; `nil` if the month does not have this day.
    private static func midnight(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64? {
        var fields = tm()
        (fields.tm_year, fields.tm_mon, fields.tm_mday) = (Int32(year - 1900), Int32(month - 1), Int32(day))
        let seconds = timegm(&fields)
        // A day that does not exist becomes one of the next month.
        return fields.tm_mday == day ? Int64(seconds) : nil
    }

    private struct Reader {
        var text: [UInt8]
        var position = 0

        var isAtEnd: Bool { position == text.count }

        mutating func digit() -> Int64? {
            guard position < text.count, (0x30...0x39).contains(text[position]) else { return nil }
            position += 1
            return Int64(text[position - 1] - 0x30)
        }

        mutating func number(_ width: Int) -> Int64? {
            var value: Int64 = 0
            for _ in 0..<width {
                guard let digit = digit() else { return nil }
                value = value * 10 + digit
            }
            return value
        }

        mutating func skip(_ character: Unicode.Scalar) -> Bool {
            guard position < text.count, UInt32(text[position]) == character.value else { return false }
            position += 1
            return true
        }

        /// Milliseconds.
        mutating func fraction() -> Int64? {
            guard let first = digit() else { return nil }
            var value = first * 100
            var weight: Int64 = 10
            while let next = digit() {
                value += next * weight
                weight /= 10
            }
            return value
        }

        /// Minutes ahead of UTC.
        mutating func offset() -> Int64? {
            if skip("Z") || skip("z") { return 0 }
            let sign: Int64
            if skip("+") { sign = 1 } else if skip("-") { sign = -1 } else { return nil }
            guard let hours = number(2), hours <= 23, skip(":"), let minutes = number(2), minutes <= 59 else {
                return nil
            }
            return sign * (hours * 60 + minutes)
        }
    }
}
