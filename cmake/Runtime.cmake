# The runtime as a library of its own, without libtorch: teson::runtime, in this tree, within another project, and installed
# (`cmake --install BUILD --component runtime`, then find_package(teson)).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(folders base net actor sim)
add_library(teson_runtime INTERFACE)
add_library(teson::runtime ALIAS teson_runtime)
target_link_libraries(teson_runtime INTERFACE teson_actor teson_sim)
set_target_properties(teson_runtime PROPERTIES EXPORT_NAME runtime)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/teson)
list(TRANSFORM folders PREPEND teson_ OUTPUT_VARIABLE libraries)
install(TARGETS teson_runtime ${libraries} EXPORT teson ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
install(EXPORT teson NAMESPACE teson:: DESTINATION ${package} COMPONENT runtime)
foreach(folder ${folders})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/teson/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/teson COMPONENT runtime
          FILES_MATCHING PATTERN "*.h" PATTERN testing EXCLUDE PATTERN "test_*" EXCLUDE)
endforeach()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tesonConfig.cmake.in ${PROJECT_BINARY_DIR}/tesonConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tesonConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES ${PROJECT_BINARY_DIR}/tesonConfig.cmake ${PROJECT_BINARY_DIR}/tesonConfigVersion.cmake DESTINATION ${package}
        COMPONENT runtime)
