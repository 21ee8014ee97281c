// Owners of libibverbs' objects.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace switchml::net {

// Calls destroy(object) when it goes; libibverbs has a separate function for each kind of object.
template <class Object, int (*kDestroy)(Object*)>
struct Destroy {
  void operator()(Object* object) const { kDestroy(object); }
};
template <class Object, int (*kDestroy)(Object*)>
using Owned = std::unique_ptr<Object, Destroy<Object, kDestroy>>;
using Context = Owned<ibv_context, ibv_close_device>;
using Domain = Owned<ibv_pd, ibv_dealloc_pd>;
using Region = Owned<ibv_mr, ibv_dereg_mr>;
using AddressHandle = Owned<ibv_ah, ibv_destroy_ah>;

}  // namespace switchml::net
