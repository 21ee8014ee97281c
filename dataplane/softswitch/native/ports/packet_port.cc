#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/if_ether.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "dataplane/softswitch/native/ports/ethernet_port.h"

namespace switchml::soft {
namespace {

std::system_error failure(int error, const std::string& what, const std::string& interface) {
  return std::system_error(error, std::generic_category(), what + " " + interface);
}

template <class Value>
void set_option(const FrameSocket& socket, int option, const Value& value, const char* what,
                const std::string& interface) {
  if (setsockopt(socket.fd(), SOL_PACKET, option, &value, sizeof value) != 0) throw failure(errno, what, interface);
}

FrameSocket open_socket(const std::string& interface) {
  FrameSocket socket(AF_PACKET, SOCK_RAW, "interface " + interface + " (this needs CAP_NET_RAW)");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  if (address.sll_ifindex == 0) throw failure(errno, "there is no interface", interface);
  // Set before the socket is bound, so that it never receives a frame without these options.
  const int on = 1;
  set_option(socket, PACKET_IGNORE_OUTGOING, on, "cannot ignore outgoing frames (this needs Linux 4.20) at", interface);
  set_option(socket, PACKET_VNET_HDR, on, "cannot ask for offloaded checksums at", interface);
  set_option(socket, PACKET_AUXDATA, on, "cannot ask for VLAN tags at", interface);
  socket.unfinished_frames = true;
  socklen_t length = sizeof address;
  if (bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw failure(errno, "cannot bind to interface", interface);
  }
  if (address.sll_hatype != ARPHRD_ETHER) throw failure(EPFNOSUPPORT, "frames are not Ethernet at", interface);
  packet_mreq promiscuous{};
  promiscuous.mr_ifindex = address.sll_ifindex;
  promiscuous.mr_type = PACKET_MR_PROMISC;
  set_option(socket, PACKET_ADD_MEMBERSHIP, promiscuous, "cannot make promiscuous", interface);
  return socket;
}

}  // namespace

PortParts open_port(uint16_t number, const PacketPortSpec& spec, size_t shards) {
  require_one_shard(shards);
  PortParts parts;
  parts.push_back(std::make_unique<EthernetPort>(number, open_socket(spec.interface)));
  return parts;
}

}  // namespace switchml::soft
