import Glibc
import NIOPosix
import NIOSSL
import Support
import Synchronization

/// Certificates that the `openssl` command makes in a temporary directory, once for all tests. Nothing is committed.
struct TestCertificates: Sendable {
    let directory: String

    /// Made on a thread of its own, since it takes seconds: other tests use the threads of Swift's pool.
    static let shared = Task { try await NIOThreadPool.singleton.runIfActive { try TestCertificates() } }

    private static let made = Mutex<String?>(nil)

    private init() throws {
        let directory = try TemporaryDirectory().path
        self.directory = directory
        Self.made.withLock { $0 = directory }
        atexit {
            if let made = TestCertificates.made.withLock({ $0 }) { TemporaryDirectory.remove(made) }
        }
        try shell(Self.script, directory)
    }

    /// `openssl ca`, because `openssl x509` of this version cannot set the dates.
    private static let script = """
        set -e
        cd "$1"
        authority() {
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -days 2 \
                -keyout "$1.key" -out "$1.pem"
        }
        key() { openssl ecparam -genkey -name prime256v1 -noout -out "$1.key"; }
        certificate() { # NAME AUTHORITY KEY START END SAN [OTHER-EXTENSION]
            openssl req -new -key "$3.key" -subj "/CN=$1" ${6:+-addext "subjectAltName=$6"} ${7:+-addext "$7"} -out "$1.csr"
            openssl ca -batch -notext -config ca.cnf -cert "$2.pem" -keyfile "$2.key" -in "$1.csr" -out "$1.pem" \
                -startdate "$4" -enddate "$5"
        }
        printf '%s\n' '[ca]' 'default_ca=d' '[d]' 'database=index' 'serial=serial' 'new_certs_dir=.' \
            'default_md=sha256' 'policy=p' 'copy_extensions=copy' 'unique_subject=no' \
            '[p]' 'commonName=supplied' > ca.cnf
        : > index
        echo 1000 > serial
        past=20200101000000Z; future=20900101000000Z; later=20910101000000Z
        authority trusted
        authority stranger
        key server
        key client
        certificate localhost trusted server $past $future DNS:localhost
        certificate address trusted server $past $future IP:127.0.0.1
        certificate both trusted server $past $future DNS:localhost,IP:127.0.0.1
        certificate untrusted stranger server $past $future DNS:localhost
        certificate expired trusted server $past 20200201000000Z DNS:localhost
        certificate early trusted server $future $later DNS:localhost
        certificate client trusted client $past $future DNS:edge-42
        key next
        certificate next trusted next $past $future DNS:edge-43
        certificate over trusted client $past 20200201000000Z DNS:edge-42
        certificate forClients trusted server $past $future DNS:localhost extendedKeyUsage=clientAuth
        # Below an authority that is over, or not valid yet, and of one of which nothing else is wrong.
        for between in over:20200201000000Z:$past later:$later:$future; do
            name=${between%%:*}; end=${between#*:}; start=${end#*:}; end=${end%:*}
            key "between-$name"
            certificate "between-$name" trusted "between-$name" $start $end '' basicConstraints=critical,CA:TRUE
            certificate "under-$name" "between-$name" server $past $future DNS:localhost
            cat "between-$name.pem" >> "under-$name.pem"
        done
        key past
        openssl req -new -key past.key -subj /CN=past -addext basicConstraints=critical,CA:TRUE -out past.csr
        openssl ca -batch -notext -selfsign -config ca.cnf -keyfile past.key -in past.csr -out past.pem \
            -startdate $past -enddate 20200201000000Z
        certificate ofPast past server $past $future DNS:localhost
        echo 'not PEM' > damaged.pem
        certificate underscore trusted server $past $future DNS:my_broker.test
        certificate other trusted server $past $future DNS:another_broker.test,IP:127.0.0.1
        openssl genpkey -algorithm ed25519 -out ed25519.key
        openssl ecparam -genkey -name secp521r1 -noout -out p521.key
        for kind in ed25519 p521; do certificate $kind trusted $kind $past $future DNS:localhost; done
        openssl pkey -in client.key -aes256 -passout pass:secret -out encrypted.key
        """

    func path(_ name: String) -> String { directory + "/" + name }

    /// A server that shows the certificate `name`; with `clientAuthority` it asks for one of the client.
    func server(_ name: String, key: String = "server", clientAuthority: String? = nil) throws -> NIOSSLContext {
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: try NIOSSLCertificate.fromPEMFile(path("\(name).pem")).map { .certificate($0) },
            privateKey: .privateKey(try NIOSSLPrivateKey(file: path("\(key).key"), format: .pem)))
        if let clientAuthority {
            configuration.certificateVerification = .noHostnameVerification
            configuration.trustRoots = .file(path(clientAuthority))
        }
        return try NIOSSLContext(configuration: configuration)
    }
}

/// Runs a script with one argument; its output is shown only when it fails.
private func shell(_ script: String, _ argument: String) throws {
    let log = "{ " + script + "\n} > /tmp/holdfast-transport.$$ 2>&1 < /dev/null"
    let wrapped =
        "(\(log)); code=$?; [ $code = 0 ] || cat /tmp/holdfast-transport.$$; "
        + "rm -f /tmp/holdfast-transport.$$; exit $code"
    var arguments = ["sh", "-c", wrapped, "sh", argument].map { (text: String) in strdup(text) }
    arguments.append(nil)
    defer { for argument in arguments { free(argument) } }
    // Sockets of other tests are not closed on exec.
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    try closeFurtherDescriptors(&actions)
    var process: pid_t = 0
    guard posix_spawn(&process, "/bin/sh", &actions, nil, arguments, environ) == 0 else {
        throw Unexpected(event: "cannot start sh: \(errno)")
    }
    var status: CInt = 0
    while waitpid(process, &status, 0) == -1 {
        guard errno == EINTR else { throw Unexpected(event: "waitpid: \(errno)") }
    }
    guard status == 0 else { throw Unexpected(event: "the script ended with \(status)") }
}
