import Glibc
import Testing

@testable import Configuration

struct HostAccountsTests {
    @Test func `the names of this host are found, and no others`() throws {
        #expect(try HostAccounts.uid(ofUser: "root") == 0)
        #expect(try HostAccounts.gid(ofGroup: "root") == 0)
        #expect(try HostAccounts.uid(ofUser: "holdfast-nobody-of-this-name") == nil)
        #expect(try HostAccounts.gid(ofGroup: "holdfast-nobody-of-this-name") == nil)
    }

    @Test(
        arguments: [(0, true), (ENOENT, true), (ESRCH, true), (EBADF, true), (EPERM, true)]
            + [EIO, EMFILE, ENFILE, EAGAIN, ENOMEM, ERANGE].map { ($0, false) })
    func `a name service that fails does not say that a name does not exist`(_ number: Int32, _ isAnswer: Bool) {
        #expect(((try? HostAccounts.Failure.check(number)) != nil) == isAnswer)
    }

    /// The C library reads a file like /etc/group with the same code and the same buffer.
    @Test(arguments: [10, 100_000])
    func `a group is found however many members it has`(members: Int) throws {
        let scratch = try ConfigurationScratch()
        let users = (0..<members).map { "user\($0)" }.joined(separator: ",")
        try scratch.write("group", "large:x:4711:\(users)\n")
        let file = try #require(fopen("\(scratch.path)/group", "r"))
        defer { fclose(file) }
        var entry = group()
        var found: UnsafeMutablePointer<group>?
        let number = HostAccounts.withBuffer { buffer, count in
            rewind(file)
            return fgetgrent_r(file, &entry, buffer, count, &found)
        }
        #expect(number == 0)
        #expect(entry.gr_gid == 4711)
    }
}
