import Glibc
import Testing
import Vocabulary

@Suite struct SystemTextTests {
    @Test func `a limit of descriptors comes with what to do`() {
        #expect(systemText(EMFILE) == "Too many open files; raise LimitNOFILE of the service")
        #expect(systemText(ENFILE) == "Too many open files in system; raise the kernel's limit fs.file-max")
        #expect(systemText(ENOENT) == "No such file or directory")
    }
}
