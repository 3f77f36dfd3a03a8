import Support
import Systemd
import Testing

@Suite struct `The catalog` {
    let entries = Catalog.entries

    @Test func `explains every message id`() {
        for id in MessageID.allCases {
            #expect(entries[id.description] != nil, "\(id) has no entry")
        }
    }

    @Test func `explains no message id that is never written`() {
        let known = Set(MessageID.allCases.map(\.description))
        #expect(Set(entries.keys).subtracting(known).isEmpty)
    }

    @Test func `every entry has a subject, its author and a text`() {
        for (id, entry) in entries {
            #expect(entry.headers["Subject"]?.isEmpty == false, "\(id)")
            #expect(entry.headers["Defined-By"] == "Holdfast", "\(id)")
            #expect(!entry.text.isEmpty, "\(id)")
        }
    }

    @Test func `no entry repeats a line`() {
        for (id, entry) in entries {
            let lines = entry.text.split(separator: "\n")
            #expect(Set(lines).count == lines.count, "\(id)")
        }
    }

    @Test func `refers only to fields that Holdfast writes`() {
        let known = Set(JournalFieldName.all.map(\.description))
        var found = 0
        for (id, entry) in entries {
            for reference in entry.references {
                #expect(known.contains(reference), "\(id) refers to @\(reference)@")
                found += 1
            }
        }
        #expect(found > 0)
    }

    @Test func `message ids are 32 lower-case hexadecimal digits and unique`() {
        for id in MessageID.allCases {
            #expect(id.description.utf8.count == 32)
            #expect(id.description.allSatisfy { "0123456789abcdef".contains($0) })
        }
        #expect(Set(MessageID.allCases.map(\.description)).count == MessageID.allCases.count)
    }
}
