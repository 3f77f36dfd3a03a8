/* The clients of bench-throughput: what is written and read is counted, and nothing is looked at that need not be.
 *
 *     wire publish PORT COUNT SIZE QOS WINDOW CONNECTIONS    a raw MQTT 5 publisher that pipelines
 *     wire receive PORT COUNT SIZE QOS FILTER                a raw MQTT 5 subscriber
 *     wire socket PATH SESSION COUNT SIZE QOS WINDOW CONNECTIONS
 *                                                            publishes at the control socket, and pipelines
 *     wire consume PATH SESSION COUNT                        a durable consumer that acknowledges every 100 messages, or
 *                                                            64 KiB: large ones are not given unless it does
 *     wire latency PATH SESSION COUNT RATE                   one message after the other, RATE a second
 *     wire flush FILE COUNT                                  appends of 4 KiB, each with fdatasync
 *     wire append FILE COUNT SIZE                            appends of SIZE, with an fdatasync after every 2 MiB
 *     wire hold PORT COUNT INTERVAL                          so many raw MQTT 5 connections, each with a PINGREQ every
 *                                                            INTERVAL seconds; those that end are made again
 *
 * `receive` and `consume` print "ready" when they are subscribed, and `hold` prints "up" whenever all connections are
 * there. The others print one line when they are done: "seconds FIRST LAST", by CLOCK_MONOTONIC, or
 * "microseconds P50 P99" for `latency` and `flush`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *room(size_t size)
{
    void *bytes = malloc(size);
    if (!bytes) fail("malloc");
    return bytes;
}

static void put(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(fd, bytes, count);
        if (done < 0) fail("write");
        bytes += done;
        count -= done;
    }
}

static size_t get(int fd, char *bytes, size_t most)
{
    ssize_t count = read(fd, bytes, most);
    if (count == 0) errno = ECONNRESET;
    if (count <= 0) fail("read");
    return count;
}

static void say(double first, double last)
{
    printf("seconds %.6f %.6f\n", first, last);
    fflush(stdout);
}

static int smaller(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void say_percentiles(double *times, int count)
{
    qsort(times, count, sizeof *times, smaller);
    printf("microseconds %.1f %.1f\n", times[count / 2] * 1e6, times[count * 99 / 100] * 1e6);
}

/* MQTT */

static int connect_mqtt(int port, const char *kind, int number)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    char packet[64], answer[64];
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int name = snprintf(packet + 15, sizeof packet - 15, "wire-%s-%d-%d", kind, getpid(), number);
    /* Clean Start, keep-alive off, no properties. */
    memcpy(packet, "\x10\x00\x00\x04MQTT\x05\x02\x00\x00\x00\x00", 14);
    packet[1] = 13 + name;
    packet[14] = name;
    put(fd, packet, 15 + name);
    if (get(fd, answer, sizeof answer) < 4 || answer[0] != 0x20 || answer[3] != 0) {
        errno = EPROTO;
        fail("CONNACK");
    }
    return fd;
}

/* Cuts what comes into packets, whatever their length; counts those whose first byte matches. */
struct packets {
    unsigned char type;
    int at; /* 0: at the type; 1: in the length; 2: in the body */
    unsigned length, shift, seen;
    unsigned char head[4];
};

static int packet_ends(struct packets *state, const unsigned char **bytes, const unsigned char *end)
{
    while (*bytes < end) {
        if (state->at == 0) {
            state->type = *(*bytes)++;
            state->length = state->shift = state->seen = 0;
            state->at = 1;
        } else if (state->at == 1) {
            unsigned char byte = *(*bytes)++;
            state->length |= (byte & 127u) << state->shift;
            state->shift += 7;
            if (!(byte & 128)) state->at = 2;
        }
        if (state->at == 2) {
            while (state->seen < state->length && *bytes < end) {
                unsigned some = state->length - state->seen;
                if (some > end - *bytes) some = end - *bytes;
                for (unsigned i = 0; i < some && state->seen + i < 4; i++) state->head[state->seen + i] = (*bytes)[i];
                state->seen += some;
                *bytes += some;
            }
            if (state->seen < state->length) return 0;
            state->at = 0;
            return 1;
        }
    }
    return 0;
}

static size_t put_length(char *at, unsigned length)
{
    size_t count = 0;
    do {
        at[count] = length & 127;
        length >>= 7;
        if (length) at[count] |= 128;
        count++;
    } while (length);
    return count;
}

/* Somebody who sends `count` of something and gets an answer to each. */
struct sender {
    int fd, left, unanswered;
    char *out;
    size_t start, end, most;
    struct packets packets;
    unsigned short id;
};

static void publish(int argc, char **argv)
{
    if (argc != 8) exit(2);
    int port = atoi(argv[2]), count = atoi(argv[3]), size = atoi(argv[4]), qos = atoi(argv[5]);
    int window = atoi(argv[6]), connections = atoi(argv[7]), finished = 0;
    struct sender *senders = calloc(connections, sizeof *senders);
    struct pollfd *polls = calloc(connections, sizeof *polls);
    size_t packet = size + 64, most = packet > 1 << 17 ? packet * 2 : 1 << 18;
    unsigned char *in = room(1 << 16);
    for (int i = 0; i < connections; i++) {
        senders[i] = (struct sender){.fd = connect_mqtt(port, "publish", i), .left = count / connections, .most = most};
        senders[i].out = room(most);
        fcntl(senders[i].fd, F_SETFL, O_NONBLOCK);
    }
    double first = now();
    while (finished < connections) {
        for (int i = 0; i < connections; i++) {
            struct sender *s = &senders[i];
            if (s->start == s->end) s->start = s->end = 0;
            while (s->left > 0 && s->unanswered < window && s->end + packet <= s->most) {
                char *at = s->out + s->end;
                *at++ = 0x30 | qos << 1;
                at += put_length(at, 2 + 11 + 2 + 1 + size);
                memcpy(at, "\0\013bench/topic", 13);
                at += 13;
                s->id = s->id == 65535 ? 1 : s->id + 1;
                *at++ = s->id >> 8;
                *at++ = s->id & 255;
                *at++ = 0;
                memset(at, 'x', size);
                s->end = at + size - s->out;
                s->left--;
                s->unanswered++;
            }
            polls[i].fd = s->fd;
            polls[i].events = POLLIN | (s->end > s->start ? POLLOUT : 0);
        }
        if (poll(polls, connections, -1) < 0) fail("poll");
        for (int i = 0; i < connections; i++) {
            struct sender *s = &senders[i];
            if (polls[i].revents & POLLOUT) {
                ssize_t done = write(s->fd, s->out + s->start, s->end - s->start);
                if (done < 0 && errno != EAGAIN) fail("write");
                if (done > 0) s->start += done;
            }
            if (!(polls[i].revents & ~POLLOUT)) continue;
            const unsigned char *at = in, *end = in + get(s->fd, (char *)in, 1 << 16);
            while (packet_ends(&s->packets, &at, end)) {
                int type = s->packets.type >> 4;
                if (type == 5) {
                    /* PUBREC: PUBREL. It has room: a PUBREL is never larger than its PUBLISH was. */
                    char pubrel[4] = {0x62, 2, s->packets.head[0], s->packets.head[1]};
                    if (s->end + 4 > s->most) {
                        memmove(s->out, s->out + s->start, s->end - s->start);
                        s->end -= s->start;
                        s->start = 0;
                    }
                    memcpy(s->out + s->end, pubrel, 4);
                    s->end += 4;
                } else if (type == 4 || type == 7) {
                    if (s->packets.length > 2 && s->packets.head[2] >= 0x80) {
                        errno = EPROTO;
                        fail("a message was refused");
                    }
                    if (--s->unanswered == 0 && s->left == 0) finished++;
                }
            }
        }
    }
    say(first, now());
}

static void receive(int argc, char **argv)
{
    if (argc != 7) exit(2);
    int port = atoi(argv[2]), count = atoi(argv[3]), qos = atoi(argv[5]), got = 0;
    int fd = connect_mqtt(port, "receive", 0), length = strlen(argv[6]);
    char packet[256], *at = packet;
    unsigned char *in = room(1 << 18);
    struct packets packets = {0};
    *at++ = (char)0x82;
    at += put_length(at, 2 + 1 + 2 + length + 1);
    memcpy(at, "\0\1\0\0", 4);
    at[4] = length;
    memcpy(at + 5, argv[6], length);
    at[5 + length] = qos;
    put(fd, packet, at + 6 + length - packet);
    double first = 0;
    while (got < count) {
        const unsigned char *from = in, *end = in + get(fd, (char *)in, 1 << 18);
        while (packet_ends(&packets, &from, end)) {
            if (packets.type >> 4 == 9) {
                printf("ready\n");
                fflush(stdout);
            } else if (packets.type >> 4 == 3) {
                if (++got == 1) first = now();
            }
        }
    }
    say(first, now());
}

/* Both directions of a connection that does nothing but live. */
static void hold(int argc, char **argv)
{
    if (argc != 5) exit(2);
    int port = atoi(argv[2]), count = atoi(argv[3]), up = 0, said = 0;
    double interval = atof(argv[4]);
    struct { int fd, isUp; double next; } *held = calloc(count, sizeof *held);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct epoll_event events[256], event;
    int poller = epoll_create1(EPOLL_CLOEXEC);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < count; i++) held[i].fd = -1;
    for (;;) {
        double time = now(), next = time + 3600;
        for (int i = 0; i < count; i++) {
            if (held[i].fd < 0 && held[i].next <= time) {
                held[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                if (held[i].fd < 0) fail("socket");
                if (connect(held[i].fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
                    fail("connect");
                event.events = EPOLLOUT;
                event.data.u32 = i;
                epoll_ctl(poller, EPOLL_CTL_ADD, held[i].fd, &event);
                held[i].next = time + 3600;
            } else if (held[i].isUp && held[i].next <= time) {
                put(held[i].fd, "\xC0", 2);
                held[i].next = time + interval;
            }
            if (held[i].next < next) next = held[i].next;
        }
        if (up == count && !said) {
            printf("up %.6f\n", now());
            fflush(stdout);
            said = 1;
        }
        int ready = epoll_wait(poller, events, 256, (next - now()) * 1000 + 1);
        for (int e = 0; e < ready; e++) {
            int i = events[e].data.u32, fd = held[i].fd;
            char packet[64], in[4096];
            ssize_t got = 1;
            if (events[e].events & EPOLLOUT) {
                int name = snprintf(packet + 15, sizeof packet - 15, "wire-hold-%d-%d", getpid(), i);
                memcpy(packet, "\x10\x00\x00\x04MQTT\x05\x02\x00\x00\x00\x00", 14);
                packet[1] = 13 + name;
                packet[14] = name;
                got = write(fd, packet, 15 + name);
                event.events = EPOLLIN;
                event.data.u32 = i;
                if (got > 0) epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event);
            } else if ((got = read(fd, in, sizeof in)) > 0 && !held[i].isUp) {
                held[i].isUp = 1;
                held[i].next = now() + interval * (i + 1) / count;
                up++;
            }
            if (got <= 0) {
                close(fd);
                up -= held[i].isUp;
                held[i].isUp = said = 0;
                held[i].fd = -1;
                held[i].next = now() + 0.05;
            }
        }
    }
}

/* The control socket */

static int connect_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) fail(path);
    return fd;
}

static int answers(const char *bytes, size_t count)
{
    int lines = 0;
    const char *error = memmem(bytes, count, "\"error\"", 7);
    if (error) {
        fprintf(stderr, "wire: %.*s\n", (int)(count - (error - bytes)), error);
        exit(1);
    }
    for (const char *at = bytes, *end = bytes + count; (at = memchr(at, '\n', end - at)); at++) lines++;
    return lines;
}

static void control_socket(int argc, char **argv)
{
    if (argc != 9) exit(2);
    int count = atoi(argv[4]), size = atoi(argv[5]), qos = atoi(argv[6]), window = atoi(argv[7]);
    int connections = atoi(argv[8]), finished = 0, id = 0;
    struct sender *senders = calloc(connections, sizeof *senders);
    struct pollfd *polls = calloc(connections, sizeof *polls);
    char *payload = room(size + 1), *in = room(1 << 16);
    size_t line = size + 256, most = line > 1 << 17 ? line * 2 : 1 << 18;
    memset(payload, 'x', size);
    payload[size] = 0;
    for (int i = 0; i < connections; i++) {
        senders[i] = (struct sender){.fd = connect_socket(argv[2]), .left = count / connections, .most = most};
        senders[i].out = room(most);
        fcntl(senders[i].fd, F_SETFL, O_NONBLOCK);
    }
    double first = now();
    while (finished < connections) {
        for (int i = 0; i < connections; i++) {
            struct sender *s = &senders[i];
            if (s->start == s->end) s->start = s->end = 0;
            while (s->left > 0 && s->unanswered < window && s->end + line <= s->most) {
                s->end += snprintf(
                    s->out + s->end, line,
                    "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"message.publish\",\"params\":{\"session\":\"%s\","
                    "\"topic\":\"bench/topic\",\"qos\":%d,\"payload\":\"%s\"}}\n", ++id, argv[3], qos, payload);
                s->left--;
                s->unanswered++;
            }
            polls[i].fd = s->fd;
            polls[i].events = POLLIN | (s->end > s->start ? POLLOUT : 0);
        }
        if (poll(polls, connections, -1) < 0) fail("poll");
        for (int i = 0; i < connections; i++) {
            struct sender *s = &senders[i];
            if (polls[i].revents & POLLOUT) {
                ssize_t done = write(s->fd, s->out + s->start, s->end - s->start);
                if (done < 0 && errno != EAGAIN) fail("write");
                if (done > 0) s->start += done;
            }
            if (!(polls[i].revents & ~POLLOUT)) continue;
            s->unanswered -= answers(in, get(s->fd, in, 1 << 16));
            if (s->unanswered == 0 && s->left == 0) finished++;
        }
    }
    say(first, now());
}

static void consume(int argc, char **argv)
{
    if (argc != 5) exit(2);
    int fd = connect_socket(argv[2]), count = atoi(argv[4]), got = 0;
    char line[512], subscription[64] = "", *in = room(2 << 20);
    size_t held = 0, unanswered = 0;
    double first = 0;
    dprintf(fd, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"message.subscribe\",\"params\":{\"session\":\"%s\","
        "\"filter\":\"bench/#\",\"consumer\":\"bench\"}}\n", argv[3]);
    while (got < count) {
        /* Without a newline in what was held, only what is new has to be searched. */
        size_t searched = held;
        held += get(fd, in + held, (2 << 20) - held);
        char *at = in, *end = in + held, *next = memchr(in + searched, '\n', held - searched);
        for (; next; next = memchr(at, '\n', end - at)) {
            *next = 0;
            char *id = strstr(at, "\"id\":"), *name = *subscription ? NULL : strstr(at, "\"subscription\":\"");
            if (strstr(at, "\"error\"")) {
                fprintf(stderr, "wire: %s\n", at);
                exit(1);
            }
            if (!*subscription && name) {
                sscanf(name + 16, "%63[^\"]", subscription);
                printf("ready\n");
                fflush(stdout);
            } else if (strstr(at, "\"message.received\"")) {
                if (++got == 1) first = now();
                unanswered += next - at;
                if (got % 100 == 0 || got == count || unanswered >= 64 << 10) {
                    unanswered = 0;
                    int length = snprintf(
                        line, sizeof line,
                        "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"message.ack\",\"params\":{\"subscription\":\"%s\","
                        "\"id\":%ld,\"upTo\":true}}\n", got, subscription, atol(id + 5));
                    put(fd, line, length);
                }
            }
            at = next + 1;
        }
        held = end - at;
        memmove(in, at, held);
    }
    say(first, now());
}

static void latency(int argc, char **argv)
{
    if (argc != 6) exit(2);
    int fd = connect_socket(argv[2]), count = atoi(argv[4]), rate = atoi(argv[5]);
    double *times = room(count * sizeof *times), start = now();
    char line[512], in[4096];
    for (int i = 0; i < count; i++) {
        double due = start + (double)i / rate, wait = due - now();
        if (wait > 0) usleep(wait * 1e6);
        double sent = now();
        put(fd, line, snprintf(
            line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"message.publish\",\"params\":{\"session\":\"%s\","
            "\"topic\":\"bench/topic\",\"payload\":\"%0100d\"}}\n", i, argv[3], i));
        if (answers(in, get(fd, in, sizeof in)) != 1) {
            errno = EPROTO;
            fail("more or less than one answer");
        }
        times[i] = now() - sent;
    }
    say_percentiles(times, count);
}

static void flush_file(int argc, char **argv)
{
    if (argc != 4) exit(2);
    int fd = open(argv[2], O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600), count = atoi(argv[3]);
    double *times = room(count * sizeof *times);
    char page[4096] = {0};
    if (fd < 0) fail(argv[2]);
    for (int i = 0; i < count; i++) {
        double start = now();
        put(fd, page, sizeof page);
        if (fdatasync(fd) < 0) fail("fdatasync");
        times[i] = now() - start;
    }
    unlink(argv[2]);
    say_percentiles(times, count);
}

static void append_file(int argc, char **argv)
{
    if (argc != 5) exit(2);
    int fd = open(argv[2], O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600), count = atoi(argv[3]);
    size_t size = atoi(argv[4]), unflushed = 0;
    char *bytes = room(size);
    if (fd < 0) fail(argv[2]);
    memset(bytes, 'x', size);
    double first = now();
    for (int i = 1; i <= count; i++) {
        put(fd, bytes, size);
        unflushed += size;
        if (unflushed < 2 << 20 && i < count) continue;
        if (fdatasync(fd) < 0) fail("fdatasync");
        unflushed = 0;
    }
    double last = now();
    unlink(argv[2]);
    say(first, last);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "publish")) publish(argc, argv);
    else if (!strcmp(what, "receive")) receive(argc, argv);
    else if (!strcmp(what, "socket")) control_socket(argc, argv);
    else if (!strcmp(what, "consume")) consume(argc, argv);
    else if (!strcmp(what, "latency")) latency(argc, argv);
    else if (!strcmp(what, "flush")) flush_file(argc, argv);
    else if (!strcmp(what, "append")) append_file(argc, argv);
    else if (!strcmp(what, "hold")) hold(argc, argv);
    else return 2;
    return 0;
}
