#pragma once
// The kernel's routing netlink interface. <linux/if.h> is left out on purpose: it declares again what glibc's
// <net/if.h> declares, and Swift then finds every name twice.
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
// The timers whose descriptors tell that the clock was set: the rest of what watching the host takes.
#include <sys/timerfd.h>
