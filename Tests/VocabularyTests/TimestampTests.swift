import Testing
import Vocabulary

struct TimestampTests {
    @Test func `a time is moved by milliseconds, to the end of the range at most`() {
        let time = Timestamp(rawValue: 1000)
        #expect(time.advanced(by: 1).rawValue == 1001)
        #expect(time.advanced(by: -1001).rawValue == -1)
        #expect(time.advanced(by: .max).rawValue == .max)
        #expect(Timestamp(rawValue: -1000).advanced(by: .min).rawValue == .min)
    }
}
