"""What the target uses of Vulkan's registry, made from vk.xml by `python tools/vulkantable.py`; do not edit.

Kinds are u8 … u64, i32, f32, size, char, ptr, another struct, or one of these with [count]. Structs are given with
their sType, or -, and follow those that they hold; functions with what they give, then what they take.
"""

from __future__ import annotations

CONSTANTS = """
VK_SUCCESS 0
VK_NOT_READY 1
VK_TIMEOUT 2
VK_INCOMPLETE 5
VK_ERROR_OUT_OF_HOST_MEMORY -1
VK_ERROR_OUT_OF_DEVICE_MEMORY -2
VK_ERROR_INITIALIZATION_FAILED -3
VK_ERROR_DEVICE_LOST -4
VK_ERROR_MEMORY_MAP_FAILED -5
VK_ERROR_LAYER_NOT_PRESENT -6
VK_ERROR_EXTENSION_NOT_PRESENT -7
VK_ERROR_FEATURE_NOT_PRESENT -8
VK_ERROR_INCOMPATIBLE_DRIVER -9
VK_ERROR_TOO_MANY_OBJECTS -10
VK_ERROR_OUT_OF_POOL_MEMORY -1000069000
VK_ERROR_FRAGMENTED_POOL -12
VK_ERROR_INVALID_EXTERNAL_HANDLE -1000072003
VK_ERROR_INVALID_SHADER_NV -1000012000
VK_ERROR_UNKNOWN -13
VK_PHYSICAL_DEVICE_TYPE_OTHER 0
VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU 1
VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU 2
VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU 3
VK_PHYSICAL_DEVICE_TYPE_CPU 4
VK_QUEUE_COMPUTE_BIT 2
VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT 1
VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT 2
VK_MEMORY_PROPERTY_HOST_COHERENT_BIT 4
VK_MEMORY_PROPERTY_HOST_CACHED_BIT 8
VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT 2
VK_BUFFER_USAGE_TRANSFER_SRC_BIT 1
VK_BUFFER_USAGE_TRANSFER_DST_BIT 2
VK_BUFFER_USAGE_STORAGE_BUFFER_BIT 32
VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT 131072
VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT 4
VK_SHADER_STAGE_COMPUTE_BIT 32
VK_DESCRIPTOR_TYPE_STORAGE_BUFFER 7
VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER 4
VK_FORMAT_R32_UINT 98
VK_FORMAT_R32G32B32A32_UINT 107
VK_PIPELINE_BIND_POINT_COMPUTE 1
VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT 1
VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT 8192
VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT 2048
VK_PIPELINE_STAGE_TRANSFER_BIT 4096
VK_PIPELINE_STAGE_HOST_BIT 16384
VK_ACCESS_SHADER_READ_BIT 32
VK_ACCESS_SHADER_WRITE_BIT 64
VK_ACCESS_TRANSFER_READ_BIT 2048
VK_ACCESS_TRANSFER_WRITE_BIT 4096
VK_ACCESS_HOST_READ_BIT 8192
VK_ACCESS_HOST_WRITE_BIT 16384
VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT 4
VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT 1
VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT 2
VK_SEMAPHORE_TYPE_TIMELINE 1
VK_QUERY_TYPE_TIMESTAMP 2
VK_QUERY_RESULT_64_BIT 1
VK_QUERY_RESULT_WAIT_BIT 2
VK_SUBGROUP_FEATURE_BALLOT_BIT 8
VK_SUBGROUP_FEATURE_SHUFFLE_BIT 16
VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT 256
VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT 4096
VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT 2
VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT 1
VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT 4
VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT 2
"""

STRUCTS = """
VkApplicationInfo 0 sType:i32 pNext:ptr pApplicationName:ptr applicationVersion:u32 pEngineName:ptr
    engineVersion:u32 apiVersion:u32
VkInstanceCreateInfo 1 sType:i32 pNext:ptr flags:u32 pApplicationInfo:ptr enabledLayerCount:u32
    ppEnabledLayerNames:ptr enabledExtensionCount:u32 ppEnabledExtensionNames:ptr
VkLayerProperties - layerName:char[256] specVersion:u32 implementationVersion:u32 description:char[256]
VkExtensionProperties - extensionName:char[256] specVersion:u32
VkDebugUtilsMessengerCreateInfoEXT 1000128004 sType:i32 pNext:ptr flags:u32 messageSeverity:u32 messageType:u32
    pfnUserCallback:ptr pUserData:ptr
VkDebugUtilsMessengerCallbackDataEXT 1000128003 sType:i32 pNext:ptr flags:u32 pMessageIdName:ptr messageIdNumber:i32
    pMessage:ptr queueLabelCount:u32 pQueueLabels:ptr cmdBufLabelCount:u32 pCmdBufLabels:ptr objectCount:u32
    pObjects:ptr
VkPhysicalDeviceLimits - maxImageDimension1D:u32 maxImageDimension2D:u32 maxImageDimension3D:u32
    maxImageDimensionCube:u32 maxImageArrayLayers:u32 maxTexelBufferElements:u32 maxUniformBufferRange:u32
    maxStorageBufferRange:u32 maxPushConstantsSize:u32 maxMemoryAllocationCount:u32 maxSamplerAllocationCount:u32
    bufferImageGranularity:u64 sparseAddressSpaceSize:u64 maxBoundDescriptorSets:u32
    maxPerStageDescriptorSamplers:u32 maxPerStageDescriptorUniformBuffers:u32
    maxPerStageDescriptorStorageBuffers:u32 maxPerStageDescriptorSampledImages:u32
    maxPerStageDescriptorStorageImages:u32 maxPerStageDescriptorInputAttachments:u32 maxPerStageResources:u32
    maxDescriptorSetSamplers:u32 maxDescriptorSetUniformBuffers:u32 maxDescriptorSetUniformBuffersDynamic:u32
    maxDescriptorSetStorageBuffers:u32 maxDescriptorSetStorageBuffersDynamic:u32 maxDescriptorSetSampledImages:u32
    maxDescriptorSetStorageImages:u32 maxDescriptorSetInputAttachments:u32 maxVertexInputAttributes:u32
    maxVertexInputBindings:u32 maxVertexInputAttributeOffset:u32 maxVertexInputBindingStride:u32
    maxVertexOutputComponents:u32 maxTessellationGenerationLevel:u32 maxTessellationPatchSize:u32
    maxTessellationControlPerVertexInputComponents:u32 maxTessellationControlPerVertexOutputComponents:u32
    maxTessellationControlPerPatchOutputComponents:u32 maxTessellationControlTotalOutputComponents:u32
    maxTessellationEvaluationInputComponents:u32 maxTessellationEvaluationOutputComponents:u32
    maxGeometryShaderInvocations:u32 maxGeometryInputComponents:u32 maxGeometryOutputComponents:u32
    maxGeometryOutputVertices:u32 maxGeometryTotalOutputComponents:u32 maxFragmentInputComponents:u32
    maxFragmentOutputAttachments:u32 maxFragmentDualSrcAttachments:u32 maxFragmentCombinedOutputResources:u32
    maxComputeSharedMemorySize:u32 maxComputeWorkGroupCount:u32[3] maxComputeWorkGroupInvocations:u32
    maxComputeWorkGroupSize:u32[3] subPixelPrecisionBits:u32 subTexelPrecisionBits:u32 mipmapPrecisionBits:u32
    maxDrawIndexedIndexValue:u32 maxDrawIndirectCount:u32 maxSamplerLodBias:f32 maxSamplerAnisotropy:f32
    maxViewports:u32 maxViewportDimensions:u32[2] viewportBoundsRange:f32[2] viewportSubPixelBits:u32
    minMemoryMapAlignment:size minTexelBufferOffsetAlignment:u64 minUniformBufferOffsetAlignment:u64
    minStorageBufferOffsetAlignment:u64 minTexelOffset:i32 maxTexelOffset:u32 minTexelGatherOffset:i32
    maxTexelGatherOffset:u32 minInterpolationOffset:f32 maxInterpolationOffset:f32
    subPixelInterpolationOffsetBits:u32 maxFramebufferWidth:u32 maxFramebufferHeight:u32 maxFramebufferLayers:u32
    framebufferColorSampleCounts:u32 framebufferDepthSampleCounts:u32 framebufferStencilSampleCounts:u32
    framebufferNoAttachmentsSampleCounts:u32 maxColorAttachments:u32 sampledImageColorSampleCounts:u32
    sampledImageIntegerSampleCounts:u32 sampledImageDepthSampleCounts:u32 sampledImageStencilSampleCounts:u32
    storageImageSampleCounts:u32 maxSampleMaskWords:u32 timestampComputeAndGraphics:u32 timestampPeriod:f32
    maxClipDistances:u32 maxCullDistances:u32 maxCombinedClipAndCullDistances:u32 discreteQueuePriorities:u32
    pointSizeRange:f32[2] lineWidthRange:f32[2] pointSizeGranularity:f32 lineWidthGranularity:f32 strictLines:u32
    standardSampleLocations:u32 optimalBufferCopyOffsetAlignment:u64 optimalBufferCopyRowPitchAlignment:u64
    nonCoherentAtomSize:u64
VkPhysicalDeviceSparseProperties - residencyStandard2DBlockShape:u32 residencyStandard2DMultisampleBlockShape:u32
    residencyStandard3DBlockShape:u32 residencyAlignedMipSize:u32 residencyNonResidentStrict:u32
VkPhysicalDeviceProperties - apiVersion:u32 driverVersion:u32 vendorID:u32 deviceID:u32 deviceType:i32
    deviceName:char[256] pipelineCacheUUID:u8[16] limits:VkPhysicalDeviceLimits
    sparseProperties:VkPhysicalDeviceSparseProperties
VkPhysicalDeviceProperties2 1000059001 sType:i32 pNext:ptr properties:VkPhysicalDeviceProperties
VkPhysicalDeviceVulkan11Properties 50 sType:i32 pNext:ptr deviceUUID:u8[16] driverUUID:u8[16] deviceLUID:u8[8]
    deviceNodeMask:u32 deviceLUIDValid:u32 subgroupSize:u32 subgroupSupportedStages:u32
    subgroupSupportedOperations:u32 subgroupQuadOperationsInAllStages:u32 pointClippingBehavior:i32
    maxMultiviewViewCount:u32 maxMultiviewInstanceIndex:u32 protectedNoFault:u32 maxPerSetDescriptors:u32
    maxMemoryAllocationSize:u64
VkConformanceVersion - major:u8 minor:u8 subminor:u8 patch:u8
VkPhysicalDeviceVulkan12Properties 52 sType:i32 pNext:ptr driverID:i32 driverName:char[256] driverInfo:char[256]
    conformanceVersion:VkConformanceVersion denormBehaviorIndependence:i32 roundingModeIndependence:i32
    shaderSignedZeroInfNanPreserveFloat16:u32 shaderSignedZeroInfNanPreserveFloat32:u32
    shaderSignedZeroInfNanPreserveFloat64:u32 shaderDenormPreserveFloat16:u32 shaderDenormPreserveFloat32:u32
    shaderDenormPreserveFloat64:u32 shaderDenormFlushToZeroFloat16:u32 shaderDenormFlushToZeroFloat32:u32
    shaderDenormFlushToZeroFloat64:u32 shaderRoundingModeRTEFloat16:u32 shaderRoundingModeRTEFloat32:u32
    shaderRoundingModeRTEFloat64:u32 shaderRoundingModeRTZFloat16:u32 shaderRoundingModeRTZFloat32:u32
    shaderRoundingModeRTZFloat64:u32 maxUpdateAfterBindDescriptorsInAllPools:u32
    shaderUniformBufferArrayNonUniformIndexingNative:u32 shaderSampledImageArrayNonUniformIndexingNative:u32
    shaderStorageBufferArrayNonUniformIndexingNative:u32 shaderStorageImageArrayNonUniformIndexingNative:u32
    shaderInputAttachmentArrayNonUniformIndexingNative:u32 robustBufferAccessUpdateAfterBind:u32
    quadDivergentImplicitLod:u32 maxPerStageDescriptorUpdateAfterBindSamplers:u32
    maxPerStageDescriptorUpdateAfterBindUniformBuffers:u32 maxPerStageDescriptorUpdateAfterBindStorageBuffers:u32
    maxPerStageDescriptorUpdateAfterBindSampledImages:u32 maxPerStageDescriptorUpdateAfterBindStorageImages:u32
    maxPerStageDescriptorUpdateAfterBindInputAttachments:u32 maxPerStageUpdateAfterBindResources:u32
    maxDescriptorSetUpdateAfterBindSamplers:u32 maxDescriptorSetUpdateAfterBindUniformBuffers:u32
    maxDescriptorSetUpdateAfterBindUniformBuffersDynamic:u32 maxDescriptorSetUpdateAfterBindStorageBuffers:u32
    maxDescriptorSetUpdateAfterBindStorageBuffersDynamic:u32 maxDescriptorSetUpdateAfterBindSampledImages:u32
    maxDescriptorSetUpdateAfterBindStorageImages:u32 maxDescriptorSetUpdateAfterBindInputAttachments:u32
    supportedDepthResolveModes:u32 supportedStencilResolveModes:u32 independentResolveNone:u32
    independentResolve:u32 filterMinmaxSingleComponentFormats:u32 filterMinmaxImageComponentMapping:u32
    maxTimelineSemaphoreValueDifference:u64 framebufferIntegerColorSampleCounts:u32
VkPhysicalDeviceVulkan13Properties 54 sType:i32 pNext:ptr minSubgroupSize:u32 maxSubgroupSize:u32
    maxComputeWorkgroupSubgroups:u32 requiredSubgroupSizeStages:u32 maxInlineUniformBlockSize:u32
    maxPerStageDescriptorInlineUniformBlocks:u32 maxPerStageDescriptorUpdateAfterBindInlineUniformBlocks:u32
    maxDescriptorSetInlineUniformBlocks:u32 maxDescriptorSetUpdateAfterBindInlineUniformBlocks:u32
    maxInlineUniformTotalSize:u32 integerDotProduct8BitUnsignedAccelerated:u32
    integerDotProduct8BitSignedAccelerated:u32 integerDotProduct8BitMixedSignednessAccelerated:u32
    integerDotProduct4x8BitPackedUnsignedAccelerated:u32 integerDotProduct4x8BitPackedSignedAccelerated:u32
    integerDotProduct4x8BitPackedMixedSignednessAccelerated:u32 integerDotProduct16BitUnsignedAccelerated:u32
    integerDotProduct16BitSignedAccelerated:u32 integerDotProduct16BitMixedSignednessAccelerated:u32
    integerDotProduct32BitUnsignedAccelerated:u32 integerDotProduct32BitSignedAccelerated:u32
    integerDotProduct32BitMixedSignednessAccelerated:u32 integerDotProduct64BitUnsignedAccelerated:u32
    integerDotProduct64BitSignedAccelerated:u32 integerDotProduct64BitMixedSignednessAccelerated:u32
    integerDotProductAccumulatingSaturating8BitUnsignedAccelerated:u32
    integerDotProductAccumulatingSaturating8BitSignedAccelerated:u32
    integerDotProductAccumulatingSaturating8BitMixedSignednessAccelerated:u32
    integerDotProductAccumulatingSaturating4x8BitPackedUnsignedAccelerated:u32
    integerDotProductAccumulatingSaturating4x8BitPackedSignedAccelerated:u32
    integerDotProductAccumulatingSaturating4x8BitPackedMixedSignednessAccelerated:u32
    integerDotProductAccumulatingSaturating16BitUnsignedAccelerated:u32
    integerDotProductAccumulatingSaturating16BitSignedAccelerated:u32
    integerDotProductAccumulatingSaturating16BitMixedSignednessAccelerated:u32
    integerDotProductAccumulatingSaturating32BitUnsignedAccelerated:u32
    integerDotProductAccumulatingSaturating32BitSignedAccelerated:u32
    integerDotProductAccumulatingSaturating32BitMixedSignednessAccelerated:u32
    integerDotProductAccumulatingSaturating64BitUnsignedAccelerated:u32
    integerDotProductAccumulatingSaturating64BitSignedAccelerated:u32
    integerDotProductAccumulatingSaturating64BitMixedSignednessAccelerated:u32
    storageTexelBufferOffsetAlignmentBytes:u64 storageTexelBufferOffsetSingleTexelAlignment:u32
    uniformTexelBufferOffsetAlignmentBytes:u64 uniformTexelBufferOffsetSingleTexelAlignment:u32 maxBufferSize:u64
VkPhysicalDeviceFeatures - robustBufferAccess:u32 fullDrawIndexUint32:u32 imageCubeArray:u32 independentBlend:u32
    geometryShader:u32 tessellationShader:u32 sampleRateShading:u32 dualSrcBlend:u32 logicOp:u32
    multiDrawIndirect:u32 drawIndirectFirstInstance:u32 depthClamp:u32 depthBiasClamp:u32 fillModeNonSolid:u32
    depthBounds:u32 wideLines:u32 largePoints:u32 alphaToOne:u32 multiViewport:u32 samplerAnisotropy:u32
    textureCompressionETC2:u32 textureCompressionASTC_LDR:u32 textureCompressionBC:u32 occlusionQueryPrecise:u32
    pipelineStatisticsQuery:u32 vertexPipelineStoresAndAtomics:u32 fragmentStoresAndAtomics:u32
    shaderTessellationAndGeometryPointSize:u32 shaderImageGatherExtended:u32 shaderStorageImageExtendedFormats:u32
    shaderStorageImageMultisample:u32 shaderStorageImageReadWithoutFormat:u32
    shaderStorageImageWriteWithoutFormat:u32 shaderUniformBufferArrayDynamicIndexing:u32
    shaderSampledImageArrayDynamicIndexing:u32 shaderStorageBufferArrayDynamicIndexing:u32
    shaderStorageImageArrayDynamicIndexing:u32 shaderClipDistance:u32 shaderCullDistance:u32 shaderFloat64:u32
    shaderInt64:u32 shaderInt16:u32 shaderResourceResidency:u32 shaderResourceMinLod:u32 sparseBinding:u32
    sparseResidencyBuffer:u32 sparseResidencyImage2D:u32 sparseResidencyImage3D:u32 sparseResidency2Samples:u32
    sparseResidency4Samples:u32 sparseResidency8Samples:u32 sparseResidency16Samples:u32 sparseResidencyAliased:u32
    variableMultisampleRate:u32 inheritedQueries:u32
VkPhysicalDeviceFeatures2 1000059000 sType:i32 pNext:ptr features:VkPhysicalDeviceFeatures
VkPhysicalDeviceVulkan11Features 49 sType:i32 pNext:ptr storageBuffer16BitAccess:u32
    uniformAndStorageBuffer16BitAccess:u32 storagePushConstant16:u32 storageInputOutput16:u32 multiview:u32
    multiviewGeometryShader:u32 multiviewTessellationShader:u32 variablePointersStorageBuffer:u32
    variablePointers:u32 protectedMemory:u32 samplerYcbcrConversion:u32 shaderDrawParameters:u32
VkPhysicalDeviceVulkan12Features 51 sType:i32 pNext:ptr samplerMirrorClampToEdge:u32 drawIndirectCount:u32
    storageBuffer8BitAccess:u32 uniformAndStorageBuffer8BitAccess:u32 storagePushConstant8:u32
    shaderBufferInt64Atomics:u32 shaderSharedInt64Atomics:u32 shaderFloat16:u32 shaderInt8:u32
    descriptorIndexing:u32 shaderInputAttachmentArrayDynamicIndexing:u32
    shaderUniformTexelBufferArrayDynamicIndexing:u32 shaderStorageTexelBufferArrayDynamicIndexing:u32
    shaderUniformBufferArrayNonUniformIndexing:u32 shaderSampledImageArrayNonUniformIndexing:u32
    shaderStorageBufferArrayNonUniformIndexing:u32 shaderStorageImageArrayNonUniformIndexing:u32
    shaderInputAttachmentArrayNonUniformIndexing:u32 shaderUniformTexelBufferArrayNonUniformIndexing:u32
    shaderStorageTexelBufferArrayNonUniformIndexing:u32 descriptorBindingUniformBufferUpdateAfterBind:u32
    descriptorBindingSampledImageUpdateAfterBind:u32 descriptorBindingStorageImageUpdateAfterBind:u32
    descriptorBindingStorageBufferUpdateAfterBind:u32 descriptorBindingUniformTexelBufferUpdateAfterBind:u32
    descriptorBindingStorageTexelBufferUpdateAfterBind:u32 descriptorBindingUpdateUnusedWhilePending:u32
    descriptorBindingPartiallyBound:u32 descriptorBindingVariableDescriptorCount:u32 runtimeDescriptorArray:u32
    samplerFilterMinmax:u32 scalarBlockLayout:u32 imagelessFramebuffer:u32 uniformBufferStandardLayout:u32
    shaderSubgroupExtendedTypes:u32 separateDepthStencilLayouts:u32 hostQueryReset:u32 timelineSemaphore:u32
    bufferDeviceAddress:u32 bufferDeviceAddressCaptureReplay:u32 bufferDeviceAddressMultiDevice:u32
    vulkanMemoryModel:u32 vulkanMemoryModelDeviceScope:u32 vulkanMemoryModelAvailabilityVisibilityChains:u32
    shaderOutputViewportIndex:u32 shaderOutputLayer:u32 subgroupBroadcastDynamicId:u32
VkPhysicalDeviceVulkan13Features 53 sType:i32 pNext:ptr robustImageAccess:u32 inlineUniformBlock:u32
    descriptorBindingInlineUniformBlockUpdateAfterBind:u32 pipelineCreationCacheControl:u32 privateData:u32
    shaderDemoteToHelperInvocation:u32 shaderTerminateInvocation:u32 subgroupSizeControl:u32
    computeFullSubgroups:u32 synchronization2:u32 textureCompressionASTC_HDR:u32
    shaderZeroInitializeWorkgroupMemory:u32 dynamicRendering:u32 shaderIntegerDotProduct:u32 maintenance4:u32
VkMemoryType - propertyFlags:u32 heapIndex:u32
VkMemoryHeap - size:u64 flags:u32
VkPhysicalDeviceMemoryProperties - memoryTypeCount:u32 memoryTypes:VkMemoryType[32] memoryHeapCount:u32
    memoryHeaps:VkMemoryHeap[16]
VkExtent3D - width:u32 height:u32 depth:u32
VkQueueFamilyProperties - queueFlags:u32 queueCount:u32 timestampValidBits:u32
    minImageTransferGranularity:VkExtent3D
VkDeviceQueueCreateInfo 2 sType:i32 pNext:ptr flags:u32 queueFamilyIndex:u32 queueCount:u32 pQueuePriorities:ptr
VkDeviceCreateInfo 3 sType:i32 pNext:ptr flags:u32 queueCreateInfoCount:u32 pQueueCreateInfos:ptr
    enabledLayerCount:u32 ppEnabledLayerNames:ptr enabledExtensionCount:u32 ppEnabledExtensionNames:ptr
    pEnabledFeatures:ptr
VkMemoryAllocateInfo 5 sType:i32 pNext:ptr allocationSize:u64 memoryTypeIndex:u32
VkMemoryAllocateFlagsInfo 1000060000 sType:i32 pNext:ptr flags:u32 deviceMask:u32
VkMemoryRequirements - size:u64 alignment:u64 memoryTypeBits:u32
VkBufferCreateInfo 12 sType:i32 pNext:ptr flags:u32 size:u64 usage:u32 sharingMode:i32 queueFamilyIndexCount:u32
    pQueueFamilyIndices:ptr
VkBufferDeviceAddressInfo 1000244001 sType:i32 pNext:ptr buffer:u64
VkBufferViewCreateInfo 13 sType:i32 pNext:ptr flags:u32 buffer:u64 format:i32 offset:u64 range:u64
VkShaderModuleCreateInfo 16 sType:i32 pNext:ptr flags:u32 codeSize:size pCode:ptr
VkPipelineShaderStageCreateInfo 18 sType:i32 pNext:ptr flags:u32 stage:i32 module:u64 pName:ptr
    pSpecializationInfo:ptr
VkPipelineShaderStageRequiredSubgroupSizeCreateInfo 1000225001 sType:i32 pNext:ptr requiredSubgroupSize:u32
VkComputePipelineCreateInfo 29 sType:i32 pNext:ptr flags:u32 stage:VkPipelineShaderStageCreateInfo layout:u64
    basePipelineHandle:u64 basePipelineIndex:i32
VkPipelineLayoutCreateInfo 30 sType:i32 pNext:ptr flags:u32 setLayoutCount:u32 pSetLayouts:ptr
    pushConstantRangeCount:u32 pPushConstantRanges:ptr
VkPushConstantRange - stageFlags:u32 offset:u32 size:u32
VkPipelineCacheCreateInfo 17 sType:i32 pNext:ptr flags:u32 initialDataSize:size pInitialData:ptr
VkDescriptorSetLayoutCreateInfo 32 sType:i32 pNext:ptr flags:u32 bindingCount:u32 pBindings:ptr
VkDescriptorSetLayoutBinding - binding:u32 descriptorType:i32 descriptorCount:u32 stageFlags:u32
    pImmutableSamplers:ptr
VkDescriptorPoolCreateInfo 33 sType:i32 pNext:ptr flags:u32 maxSets:u32 poolSizeCount:u32 pPoolSizes:ptr
VkDescriptorPoolSize - type:i32 descriptorCount:u32
VkDescriptorSetAllocateInfo 34 sType:i32 pNext:ptr descriptorPool:u64 descriptorSetCount:u32 pSetLayouts:ptr
VkWriteDescriptorSet 35 sType:i32 pNext:ptr dstSet:u64 dstBinding:u32 dstArrayElement:u32 descriptorCount:u32
    descriptorType:i32 pImageInfo:ptr pBufferInfo:ptr pTexelBufferView:ptr
VkDescriptorBufferInfo - buffer:u64 offset:u64 range:u64
VkCommandPoolCreateInfo 39 sType:i32 pNext:ptr flags:u32 queueFamilyIndex:u32
VkCommandBufferAllocateInfo 40 sType:i32 pNext:ptr commandPool:u64 level:i32 commandBufferCount:u32
VkCommandBufferBeginInfo 42 sType:i32 pNext:ptr flags:u32 pInheritanceInfo:ptr
VkMemoryBarrier 46 sType:i32 pNext:ptr srcAccessMask:u32 dstAccessMask:u32
VkBufferCopy - srcOffset:u64 dstOffset:u64 size:u64
VkSubmitInfo 4 sType:i32 pNext:ptr waitSemaphoreCount:u32 pWaitSemaphores:ptr pWaitDstStageMask:ptr
    commandBufferCount:u32 pCommandBuffers:ptr signalSemaphoreCount:u32 pSignalSemaphores:ptr
VkTimelineSemaphoreSubmitInfo 1000207003 sType:i32 pNext:ptr waitSemaphoreValueCount:u32 pWaitSemaphoreValues:ptr
    signalSemaphoreValueCount:u32 pSignalSemaphoreValues:ptr
VkSemaphoreCreateInfo 9 sType:i32 pNext:ptr flags:u32
VkSemaphoreTypeCreateInfo 1000207002 sType:i32 pNext:ptr semaphoreType:i32 initialValue:u64
VkSemaphoreWaitInfo 1000207004 sType:i32 pNext:ptr flags:u32 semaphoreCount:u32 pSemaphores:ptr pValues:ptr
VkQueryPoolCreateInfo 11 sType:i32 pNext:ptr flags:u32 queryType:i32 queryCount:u32 pipelineStatistics:u32
"""

FUNCTIONS = """
vkEnumerateInstanceVersion i32 ptr
vkEnumerateInstanceLayerProperties i32 ptr ptr
vkEnumerateInstanceExtensionProperties i32 ptr ptr ptr
vkCreateInstance i32 ptr ptr ptr
vkDestroyInstance void ptr ptr
vkCreateDebugUtilsMessengerEXT i32 ptr ptr ptr ptr
vkDestroyDebugUtilsMessengerEXT void ptr u64 ptr
vkEnumeratePhysicalDevices i32 ptr ptr ptr
vkGetPhysicalDeviceProperties2 void ptr ptr
vkGetPhysicalDeviceFeatures2 void ptr ptr
vkGetPhysicalDeviceMemoryProperties void ptr ptr
vkGetPhysicalDeviceQueueFamilyProperties void ptr ptr ptr
vkCreateDevice i32 ptr ptr ptr ptr
vkDestroyDevice void ptr ptr
vkGetDeviceQueue void ptr u32 u32 ptr
vkDeviceWaitIdle i32 ptr
vkAllocateMemory i32 ptr ptr ptr ptr
vkFreeMemory void ptr u64 ptr
vkMapMemory i32 ptr u64 u64 u64 u32 ptr
vkCreateBuffer i32 ptr ptr ptr ptr
vkDestroyBuffer void ptr u64 ptr
vkGetBufferMemoryRequirements void ptr u64 ptr
vkBindBufferMemory i32 ptr u64 u64 u64
vkGetBufferDeviceAddress u64 ptr ptr
vkCreateBufferView i32 ptr ptr ptr ptr
vkDestroyBufferView void ptr u64 ptr
vkCreateShaderModule i32 ptr ptr ptr ptr
vkDestroyShaderModule void ptr u64 ptr
vkCreatePipelineLayout i32 ptr ptr ptr ptr
vkDestroyPipelineLayout void ptr u64 ptr
vkCreateComputePipelines i32 ptr u64 u32 ptr ptr ptr
vkDestroyPipeline void ptr u64 ptr
vkCreatePipelineCache i32 ptr ptr ptr ptr
vkDestroyPipelineCache void ptr u64 ptr
vkGetPipelineCacheData i32 ptr u64 ptr ptr
vkCreateDescriptorSetLayout i32 ptr ptr ptr ptr
vkDestroyDescriptorSetLayout void ptr u64 ptr
vkCreateDescriptorPool i32 ptr ptr ptr ptr
vkDestroyDescriptorPool void ptr u64 ptr
vkAllocateDescriptorSets i32 ptr ptr ptr
vkUpdateDescriptorSets void ptr u32 ptr u32 ptr
vkCreateCommandPool i32 ptr ptr ptr ptr
vkDestroyCommandPool void ptr u64 ptr
vkAllocateCommandBuffers i32 ptr ptr ptr
vkFreeCommandBuffers void ptr u64 u32 ptr
vkBeginCommandBuffer i32 ptr ptr
vkEndCommandBuffer i32 ptr
vkCmdBindPipeline void ptr i32 u64
vkCmdBindDescriptorSets void ptr i32 u64 u32 u32 ptr u32 ptr
vkCmdPushConstants void ptr u64 u32 u32 u32 ptr
vkCmdDispatch void ptr u32 u32 u32
vkCmdPipelineBarrier void ptr u32 u32 u32 u32 ptr u32 ptr u32 ptr
vkCmdCopyBuffer void ptr u64 u64 u32 ptr
vkCmdFillBuffer void ptr u64 u64 u64 u32
vkCmdResetQueryPool void ptr u64 u32 u32
vkCmdWriteTimestamp void ptr i32 u64 u32
vkCreateQueryPool i32 ptr ptr ptr ptr
vkDestroyQueryPool void ptr u64 ptr
vkGetQueryPoolResults i32 ptr u64 u32 u32 size ptr u64 u32
vkQueueSubmit i32 ptr u32 ptr u64
vkCreateSemaphore i32 ptr ptr ptr ptr
vkDestroySemaphore void ptr u64 ptr
vkWaitSemaphores i32 ptr ptr u64
vkGetSemaphoreCounterValue i32 ptr u64 ptr
"""
