/* Paho's C client, with its messages in files: what a program does that must not lose any, and has no Holdfast.
 *
 *     peer PORT COUNT SIZE QOS DIRECTORY
 *
 * Prints "seconds FIRST LAST", by CLOCK_MONOTONIC, when every message is acknowledged. Link with paho-mqtt3a.
 */
#include <MQTTAsync.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static sem_t connected, window;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(const char *what, int code)
{
    fprintf(stderr, "peer: %s: %d\n", what, code);
    exit(1);
}

static void is_connected(void *context, MQTTAsync_successData *data)
{
    (void)context, (void)data;
    sem_post(&connected);
}

static void is_delivered(void *context, MQTTAsync_successData *data)
{
    (void)context, (void)data;
    sem_post(&window);
}

static void has_failed(void *context, MQTTAsync_failureData *data)
{
    (void)context;
    fail("the server", data ? data->code : -1);
}

int main(int argc, char **argv)
{
    if (argc != 6) return 2;
    int count = atoi(argv[2]), size = atoi(argv[3]), qos = atoi(argv[4]), code, most = 1000;
    char address[64], *payload = malloc(size);
    MQTTAsync client;
    MQTTAsync_createOptions create = MQTTAsync_createOptions_initializer;
    MQTTAsync_connectOptions connect = MQTTAsync_connectOptions_initializer;
    MQTTAsync_responseOptions response = MQTTAsync_responseOptions_initializer;
    sem_init(&connected, 0, 0);
    sem_init(&window, 0, most);
    memset(payload, 'x', size);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%s", argv[1]);
    create.sendWhileDisconnected = 1;
    create.maxBufferedMessages = 2 * most;
    code = MQTTAsync_createWithOptions(&client, address, "peer", MQTTCLIENT_PERSISTENCE_DEFAULT, argv[5], &create);
    if (code) fail("create", code);
    connect.cleansession = 0;
    connect.keepAliveInterval = 60;
    connect.maxInflight = most;
    connect.onSuccess = is_connected;
    connect.onFailure = has_failed;
    if ((code = MQTTAsync_connect(client, &connect))) fail("connect", code);
    sem_wait(&connected);
    response.onSuccess = is_delivered;
    response.onFailure = has_failed;
    double first = now();
    for (int i = 0; i < count; i++) {
        sem_wait(&window);
        if ((code = MQTTAsync_send(client, "bench/topic", size, payload, qos, 0, &response))) fail("send", code);
    }
    for (int i = 0; i < most; i++) sem_wait(&window);
    printf("seconds %.6f %.6f\n", first, now());
    return 0;
}
