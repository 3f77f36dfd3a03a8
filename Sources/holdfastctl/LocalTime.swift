import Glibc
import Vocabulary

/// Times as people write them, on the clock of this host: `2026-11-20 09:00:00`, also with a T and without the seconds or
/// the time of day, `09:00` of today, `today` and `yesterday`. The commands print such times.
enum LocalTime {
    static func time(_ text: String, now: Timestamp) -> Timestamp? {
        var fields = tm()
        var seconds = time_t(now.rawValue / 1000)
        guard localtime_r(&seconds, &fields) != nil else { return nil }
        (fields.tm_hour, fields.tm_min, fields.tm_sec) = (0, 0, 0)
        switch text {
        case "today": break
        case "yesterday": fields.tm_mday -= 1
        default:
            let parts = text.split(maxSplits: 1, omittingEmptySubsequences: false) { $0 == " " || $0 == "T" }
            let isDate = parts[0].contains("-")
            guard isDate || parts.count == 1 else { return nil }
            if isDate {
                let date = parts[0].split(separator: "-", omittingEmptySubsequences: false).compactMap(Self.number)
                guard date.count == 3, (1970...9999).contains(date[0]), (1...12).contains(date[1]),
                    (1...31).contains(date[2]), parts[0].count == 10
                else { return nil }
                (fields.tm_year, fields.tm_mon, fields.tm_mday) = (date[0] - 1900, date[1] - 1, date[2])
            }
            if !isDate || parts.count == 2 {
                let texts = parts[isDate ? 1 : 0].split(separator: ":", omittingEmptySubsequences: false)
                let clock = texts.compactMap(Self.number)
                guard clock.count == texts.count, (2...3).contains(clock.count), clock[0] < 24, clock[1] < 60,
                    clock.count == 2 || clock[2] < 60
                else { return nil }
                (fields.tm_hour, fields.tm_min) = (clock[0], clock[1])
                if clock.count == 3 { fields.tm_sec = clock[2] }
            }
        }
        fields.tm_isdst = -1
        let day = fields.tm_mday
        let time = mktime(&fields)
        // There is no 30 February.
        guard text == "yesterday" || fields.tm_mday == day else { return nil }
        return Timestamp(rawValue: Int64(time) * 1000)
    }

    private static func number(_ text: Substring) -> Int32? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return Int32(text)
    }
}
