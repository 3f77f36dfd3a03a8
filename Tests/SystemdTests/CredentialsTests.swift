import Support
import Testing

@testable import Systemd

@Suite struct `The credentials` {
    @Test func `a credential is a file in the directory of the service`() throws {
        let scratch = try TemporaryDirectory()
        defer { scratch.remove() }
        try scratch.write("broker-password", "")
        let (directory, file) = (scratch.path, "\(scratch.path)/broker-password")
        for text in [directory, directory + "/"] {
            let credentials = Credentials(directory: text)
            #expect(credentials.directory == directory)
            #expect(try credentials.path(of: "broker-password") == file)
            #expect(throws: CredentialError.missing(name: "other", directory: directory)) {
                try credentials.path(of: "other")
            }
        }
    }

    @Test(arguments: ["", ".", "..", "a/b", "../passwd", "a\nb", "a\0b", "a:b", String(repeating: "a", count: 256)])
    func `a name cannot lead out of the directory`(name: String) {
        let credentials = Credentials(directory: "/run/credentials/x")
        #expect(throws: CredentialError.invalidName(name)) { try credentials.path(of: name) }
    }

    @Test(arguments: [nil, "", "relative"])
    func `no credential exists without a directory`(directory: String?) {
        let credentials = Credentials(directory: directory)
        #expect(credentials.directory == nil)
        #expect(throws: CredentialError.noDirectory) { try credentials.path(of: "a") }
    }

    @Test func `errors say what to change in the unit`() {
        #expect(CredentialError.missing(name: "a", directory: "/d").description.contains("LoadCredential=a:PATH"))
        #expect(CredentialError.noDirectory.description.contains("LoadCredential="))
    }
}
