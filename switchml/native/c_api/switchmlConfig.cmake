# find_package(switchml) gives the target switchml::switchml.
if(NOT TARGET switchml::switchml)
  get_filename_component(switchml_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(switchml::switchml SHARED IMPORTED)
  set_target_properties(switchml::switchml PROPERTIES
    IMPORTED_LOCATION "${switchml_prefix}/lib/libswitchml.so.0"
    IMPORTED_SONAME libswitchml.so.0
    INTERFACE_INCLUDE_DIRECTORIES "${switchml_prefix}/include")
  unset(switchml_prefix)
endif()
