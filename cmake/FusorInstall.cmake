# Installs the library, its public headers, the command, and what find_package(fusor CONFIG) and pkg-config need.
# Everything names places relative to itself: the installed folder can be moved.
include(CMakePackageConfigHelpers)

set(fusor_include_dir ${CMAKE_INSTALL_INCLUDEDIR}/fusor)
set(fusor_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fusor)
set(fusor_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS fusor EXPORT fusorTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT fusorTargets NAMESPACE fusor:: DESTINATION ${fusor_config_dir})
if(TARGET fusor_command)
  install(TARGETS fusor_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# fusor.h, what it includes, and the kernel cache's counters; the rest of each room is private.
install(FILES ${PROJECT_SOURCE_DIR}/fusor.h DESTINATION ${fusor_include_dir})
install(FILES ${PROJECT_SOURCE_DIR}/frontend/graph_builder.h DESTINATION ${fusor_include_dir}/frontend)
install(FILES ${PROJECT_SOURCE_DIR}/serialization/serialization.h DESTINATION ${fusor_include_dir}/serialization)
install(FILES ${PROJECT_SOURCE_DIR}/codegen/kernel_cache.h DESTINATION ${fusor_include_dir}/codegen)
foreach(header build executable explain verify)
  install(FILES ${PROJECT_SOURCE_DIR}/backend/${header}.h DESTINATION ${fusor_include_dir}/backend)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/backend/engines/engine.h DESTINATION ${fusor_include_dir}/backend/engines)
foreach(header attributes.h data_type.h device_info.h dims.h dtype.def engine_config.h error.h expr.h fusion.h graph.h
        lowered.h plan.h pointwise.def support.h tensor.h tensor_map.h tuning_table.h work.h)
  install(FILES ${PROJECT_SOURCE_DIR}/core/${header} DESTINATION ${fusor_include_dir}/core)
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fusorConfig.cmake.in ${PROJECT_BINARY_DIR}/fusorConfig.cmake
  INSTALL_DESTINATION ${fusor_config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fusorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fusorConfig.cmake ${PROJECT_BINARY_DIR}/fusorConfigVersion.cmake
  DESTINATION ${fusor_config_dir})

file(RELATIVE_PATH fusor_pc_to_prefix /${fusor_pkgconfig_dir} /)
string(REGEX REPLACE "/$" "" fusor_pc_to_prefix ${fusor_pc_to_prefix})
configure_file(${PROJECT_SOURCE_DIR}/cmake/fusor.pc.in ${PROJECT_BINARY_DIR}/fusor.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fusor.pc DESTINATION ${fusor_pkgconfig_dir})
